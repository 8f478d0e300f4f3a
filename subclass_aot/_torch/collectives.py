"""Collectives and process groups."""

from __future__ import annotations

from typing import Any

import torch

COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
"""The libraries of operators that communicate. They have no tag."""

functional_collectives: Any = torch.ops._c10d_functional
"""Collectives that return their results. Torch's own module of them in Python is a beta that takes other arguments."""


def group_name_of(group: torch.ScriptObject) -> str:
    """The name of a process group that an operator was given as a script object."""
    return str(torch.distributed.ProcessGroup.unbox(group).group_name)


def group_size_of(group: torch.ScriptObject) -> int:
    """How many ranks such a group has."""
    return int(torch.distributed.ProcessGroup.unbox(group).size())


def reduction_of(op: Any) -> str | None:
    """What functional collectives call a reduction; None for one that they do not know."""
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    kinds: Any = torch.distributed.ReduceOp.RedOpType
    return next((name.lower() for name in names if int(getattr(kinds, name)) == int(op.op())), None)


def work_of(handle: torch.ScriptObject) -> Any:
    """The `torch.distributed.Work` that an operator gave as a script object, which can only be waited for."""
    return torch._C._distributed_c10d.Work.unbox(handle)


def finished_work() -> Any:
    """What stands for a collective that is done: `Work` has no constructor in Python but this one, made for fakes."""
    return torch._C._distributed_c10d.FakeWork().boxed()
