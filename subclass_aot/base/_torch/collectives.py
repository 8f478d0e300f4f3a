"""Collectives and process groups."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch._ops import OpOverload

COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
"""The libraries of operators that communicate. They have no tag."""

functional_collectives: Any = torch.ops._c10d_functional
"""Collectives that return their results. Torch's own module of them in Python is a beta that takes other arguments."""


if torch.distributed.is_available():
    importlib.import_module("torch.distributed._functional_collectives")  # which defines the operator below
LAZY_WAITS = frozenset(
    getattr(functional_collectives, name).default
    for name in ("_wrap_tensor_autograd",)
    if hasattr(functional_collectives, name)
)
"""Operators that give a tensor which waits when it is first read: it has no memory, and compiled kernels crash with it.
When they go: differentiable collectives wait at once, as in torch 2.12."""


def waits_when_read(cls: type) -> bool:
    """Returns whether `cls` is torch's class of results that a collective has not brought yet.

    It has no public name.
    """
    return cls.__name__ == "AsyncCollectiveTensor" and cls.__module__ == "torch.distributed._functional_collectives"


WAIT = "trigger_wait"
"""The method by which such a tensor waits, the first time that it is called."""

HAS_WAITED = "completed"
"""The attribute that says whether it has."""


def group_name_of(group: torch.ScriptObject) -> str:
    """Returns the name of a process group that an operator was given as a script object."""
    return str(torch.distributed.ProcessGroup.unbox(group).group_name)


def group_size_of(group: torch.ScriptObject) -> int:
    """Returns how many ranks such a group has."""
    return int(torch.distributed.ProcessGroup.unbox(group).size())


def size_of_named_group(name: str) -> int:
    """Returns how many ranks the process group of a name has, by which functional collectives know it."""
    groups: Any = torch.distributed.distributed_c10d
    return int(groups._resolve_process_group(name).size())


def reduction_of(op: Any) -> str | None:
    """Returns what functional collectives call a reduction; None for one that they do not know."""
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    kinds: Any = torch.distributed.ReduceOp.RedOpType
    return next((name.lower() for name in names if int(getattr(kinds, name)) == int(op.op())), None)


def work_of(handle: torch.ScriptObject) -> Any:
    """Returns the `torch.distributed.Work` that an operator gave as a script object, which can only be waited for."""
    return torch._C._distributed_c10d.Work.unbox(handle)


def finished_work() -> Any:
    """Returns an object for a collective that is done; of no other constructor does `is_completed()` hold."""
    future: torch.futures.Future[object] = torch.futures.Future()
    future.set_result(None)
    return torch._C._distributed_c10d._create_work_from_future(future).boxed()  # type: ignore[attr-defined]


_IN_LISTS_OF_LISTS = ("scatter_", "gather_", "allgather_", "allgather_coalesced_", "reduce_scatter_")
_libraries: list[torch.library.Library] = []


def ask_in_lists_of_lists(cls: type[torch.Tensor]) -> None:
    """Has collectives dispatch to the class `cls` also where its tensors stand in lists of lists.

    The dispatcher searches subclasses in arguments and in lists of them, no deeper: beside dense tensors, wrappers in
    lists of lists would reach the backend, which reads memory that they do not have, and kills the process.

    Args:
        cls: The class whose rule is to be called.
    """
    if not torch.distributed.is_available():
        return
    library = torch.library.Library("c10d", "IMPL")
    _libraries.append(library)  # what it registers lasts as long as it does
    for name in _IN_LISTS_OF_LISTS:
        # BackendSelect runs at each call, in inference mode too, and before the kernel of any device.
        kernel = functools.partial(_ask, cls, getattr(torch.ops.c10d, name).default)
        library.impl(name, kernel, "BackendSelect", with_keyset=True)


def _ask(cls: type[torch.Tensor], func: OpOverload, keys: torch._C.DispatchKeySet, *args: Any) -> Any:
    rows = [row for arg in args[:2] for row in arg if isinstance(row, list)]
    found = next((tensor for row in rows for tensor in row if isinstance(tensor, cls)), None)
    if found is None:
        return func.redispatch(keys.remove(torch._C.DispatchKey.BackendSelect), *args)
    dispatch: Any = type(found).__torch_dispatch__
    return dispatch(func, (type(found),), args)
