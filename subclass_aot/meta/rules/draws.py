"""Draws that name a generator: without one they are the operators that have none, and their sizes may be symbols.

`torch.randn(size, generator=None)`, which programs write that pass on what they are given, is another operator than
`torch.randn(size)`. Kernels of those that take a generator know no symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from subclass_aot.meta.infer import register_meta

_aten = torch.ops.aten

_WITHOUT: dict[Any, Any] = {
    getattr(packet, f"{name}generator{end}"): getattr(packet, f"{name.rstrip('_')}{end}" or "default")
    for packet, name, end in (
        (_aten.rand, "", ""),
        (_aten.randn, "", ""),
        (_aten.randperm, "", ""),
        (_aten.randint, "", ""),
        (_aten.randint, "low_", ""),
        (_aten.rand_like, "", ""),
        (_aten.randn_like, "", ""),
        (_aten.randint_like, "", ""),
        (_aten.randint_like, "low_", "_dtype"),
        (_aten.randint_like, "Tensor_", ""),
    )
    if f"{name}generator{end}" in packet.overloads()
}
"""By operators that take a generator, the same without one. Not each torch has all."""


def _if_none_is_given(without: Callable[..., Any], *args: Any, generator: torch.Generator | None, **kwargs: Any) -> Any:
    return NotImplemented if generator is not None else without(*args, **kwargs)


def _shape(without: Callable[..., Any], *args: Any, generator: torch.Generator | None = None, **kwargs: Any) -> Any:
    return without(*args, **kwargs)


DRAWS: dict[Any, Callable[..., Any]] = {func: partial(_if_none_is_given, other) for func, other in _WITHOUT.items()}
"""Forms of draws that are given no generator."""

for _func, _other in _WITHOUT.items():
    register_meta(_func)(partial(_shape, _other))
