"""Chooses the operators on tensors without data that the accelerator serves.

What an operator gives follows from the metadata of its arguments, which is what `dispatch.run` caches. Where the
accelerator is built, it has a cache of its own in front of Python: what Python gave once, outside of streams or in a
run without data, is repeated for arguments of the same specs and the same other values. Python runs where a
tensor is something else than a leaf of no trace, where numbers are symbols, and where this file says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import PHYSICAL, effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.meta.fillers import FILLERS
from subclass_aot.meta.infer import on_new_rule
from subclass_aot.meta.operation import tell_listeners
from subclass_aot.meta.rules.forms import BY_VALUES, form_of
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.storage import Storage, in_thread
from subclass_aot.meta.tensor import MetaTensor
from subclass_aot.meta.unbacked import unbacked_rule

_accelerator: Any = hooks.leaves


def effects_for_kernel(func: Operator) -> tuple[tuple[int, ...], tuple[int, ...], bool] | None:
    """Returns what is served of an operator.

    Args:
        func: The operator.

    Returns:
        For each result the position of the argument that it is, and that it is a view of, or -1; and whether the
        operator writes. None if results do not follow from metadata alone, or if it changes the metadata of arguments.

    >>> effects_for_kernel(torch.ops.aten.t.default), effects_for_kernel(torch.ops.aten.add_.Tensor)
    (((-1,), (0,), False), ((0,), (-1,), True))
    >>> effects_for_kernel(torch.ops.aten.nonzero.default)
    """
    effects = effects_of(func)
    if effects.data_dependent or effects.reshapes or effects.composite or unbacked_rule(func) is not None:
        return None
    if func in PHYSICAL or func in BY_VALUES or form_of(func) is not None:
        return None
    if func.overloadpacket is _SET or func.overloadpacket in FILLERS:  # whose values a run without data knows
        return None
    return _positions(effects.returns_written), _positions(effects.returns_view_of), bool(effects.writes)


def _positions(arguments: tuple[tuple[int, str] | None, ...]) -> tuple[int, ...]:
    return tuple(-1 if argument is None else argument[0] for argument in arguments)


@contextmanager
def served_in_python() -> Iterator[None]:
    """Runs the block with all operators on leaves in Python, in all threads."""
    if _accelerator is None:
        yield
        return
    before = _accelerator.switch_leaves(True)
    with PutBack(partial(_accelerator.switch_leaves, before)):
        _accelerator.switch_leaves(False)
        yield


def serve_stream(kind: type) -> None:
    """Has operators in a stream of this class served, too: one that leaves them as they are, and is only notified."""
    if _accelerator is not None:
        _accelerator.serve_stream(kind)


def hits() -> int:
    """Returns how many operators the accelerator has served in this process."""
    return 0 if _accelerator is None else _accelerator.leaf_hits()


def _begin() -> None:
    blank = Storage(Spec.make((), ()))
    others = ("spec", "__weakref__", "_told")  # while somebody listens, Python makes the storages
    rest = {name: getattr(blank, name) for name in Storage.__slots__ if name not in others}
    _accelerator.install_leaf_kernels(_torch.operators.names_of_aten())
    shield = _torch.switches.Shield
    _accelerator.serve_leaves(MetaTensor, Storage, rest, shield, effects_for_kernel, in_thread, tell_listeners)
    on_new_rule.append(_accelerator.forget_leaves)


_SET = torch.ops.aten.set_
if _accelerator is not None:
    _begin()
