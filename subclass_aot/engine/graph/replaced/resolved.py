"""Replaces `resolve_conj`, `is_conj` and the same of `neg` while tracing: they see what is a lazy view in eager mode.

Eager mode gives the tensor itself back if its bit is not set. No tensor of a trace has a bit, and what stands for a
lazy one is still a view of its source, for autograd and for the user: so it is copied. If eager mode has a bit, Python
may take another branch by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.errors import OnlyInEagerModeError
from subclass_aot.meta import MetaTensor, Storage

_UNKNOWN = """is_{bit}() is asked of a part of a tensor that is lazy in eager mode, and a trace cannot tell.
  Your line:  {line}
  Instead: ask it of the whole, or resolve it first, as by x.resolve_conj()."""


def _resolved(recorder: Recorder, x: torch.Tensor) -> Any:
    return x.clone() if _has_lazy(recorder, x) else x


def _has_lazy(recorder: Recorder, x: torch.Tensor) -> bool:
    if type(x) is MetaTensor:
        return recorder.listeners.lazy_views.stand_for(Storage.of(x))
    names = x.__tensor_flatten__()[0] if _torch.wrappers.is_traceable_wrapper_subclass(x) else ()
    return any(_has_lazy(recorder, getattr(x, name)) for name in names)


def _is_conj(recorder: Recorder, x: torch.Tensor) -> Any:
    return _has_bit(recorder, x, "conj")


def _is_neg(recorder: Recorder, x: torch.Tensor) -> Any:
    return _has_bit(recorder, x, "neg")


def _has_bit(recorder: Recorder, x: torch.Tensor, bit: str) -> Any:
    leaf = _torch.plain_subclasses.leaf_of(x)
    lazy = recorder.listeners.lazy_views
    if type(leaf) is not MetaTensor or not lazy.stand_for(Storage.of(leaf)):
        return NotImplemented
    found = lazy.source_of(leaf)
    if found is None:
        raise OnlyInEagerModeError(_UNKNOWN.format(bit=bit, line=user_line()))
    return found[1].count(bit) % 2 == 1


RESOLVED: dict[Any, Callable[..., Any]] = {
    torch.resolve_conj: _resolved,
    torch.resolve_neg: _resolved,
    torch.Tensor.resolve_conj: _resolved,
    torch.Tensor.resolve_neg: _resolved,
    torch.is_conj: _is_conj,
    torch.is_neg: _is_neg,
    torch.Tensor.is_conj: _is_conj,
    torch.Tensor.is_neg: _is_neg,
}
"""What is called in their place, with the recorder as first argument."""
