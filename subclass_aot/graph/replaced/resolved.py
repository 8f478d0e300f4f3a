"""Replaces `resolve_conj` and `resolve_neg` while tracing: copies where eager would resolve a lazy view.

Eager mode gives the tensor itself back if its bit is not set. No tensor of a trace has a bit, and what stands for a
lazy one is still a view of its source, for autograd and for the user: so it is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.graph.recorder import Recorder
from subclass_aot.meta import MetaTensor, Storage


def _resolved(recorder: Recorder, x: torch.Tensor) -> Any:
    return x.clone() if _has_lazy(recorder, x) else x


def _has_lazy(recorder: Recorder, x: torch.Tensor) -> bool:
    if type(x) is MetaTensor:
        return recorder.listeners.lazy_views.stand_for(Storage.of(x))
    names = x.__tensor_flatten__()[0] if _torch.wrappers.is_traceable_wrapper_subclass(x) else ()
    return any(_has_lazy(recorder, getattr(x, name)) for name in names)


RESOLVED: dict[Any, Callable[..., Any]] = {
    torch.resolve_conj: _resolved,
    torch.resolve_neg: _resolved,
    torch.Tensor.resolve_conj: _resolved,
    torch.Tensor.resolve_neg: _resolved,
}
"""What is called in their place, with the recorder as first argument."""
