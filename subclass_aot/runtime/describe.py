"""What a call looks like, in words: for `explain()` and for the reason of a recompile."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.runtime.guards import MODES
from subclass_aot.trace import Arguments, storage_groups


def facts(arguments: Arguments, leaves: list[Any], state: tuple[Any, ...]) -> dict[str, str]:
    """Everything that a signature depends on, by name."""
    found: dict[str, str] = {}
    found["structure of the arguments"] = str(arguments.treespec)
    for name, value in zip(MODES, state, strict=True):
        found[name] = str(value)
    for i, leaf in enumerate(arguments.leaves):
        if not isinstance(leaf, torch.Tensor):
            found[f"Python value {i}"] = f"{type(leaf).__name__} {_short(leaf)}"
    for path, module in arguments.modules:
        found[f"{path}.training"] = str(module.training)
    for place, position in zip(arguments.places, arguments.value_at, strict=True):
        path = place.path
        first = arguments.path_of(position)
        if first != path:
            found[path] = f"the same tensor as {first}"
        else:
            found[path] = describe_tensor(arguments.values[position])
    found["leaves that share storage"] = str(storage_groups(leaves) or "none")
    return found


def difference(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """The facts that differ, each as one line.

    >>> difference({"x": "float32[3]"}, {"x": "float32[5]"})
    ['x: float32[3] before, float32[5] now']
    """
    names = list(dict.fromkeys([*before, *now]))
    return [
        f"{name}: {before.get(name, 'absent')} before, {now.get(name, 'absent')} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def describe_tensor(tensor: Any) -> str:
    """A tensor in one line, inner tensors and context included."""
    size = list(tensor.shape)
    kind = type(tensor)
    name = kind.__name__ if kind in (torch.Tensor, torch.nn.Parameter) else f"{kind.__module__}.{kind.__qualname__}"
    text = f"{name} {str(tensor.dtype).removeprefix('torch.')}{size} on {tensor.device}"
    if tensor.layout is torch.strided and tensor.stride() != torch.empty(tensor.shape, device="meta").stride():
        text += f" stride {tuple(tensor.stride())}"
    if tensor.requires_grad:
        text += " requires_grad" + ("" if tensor.is_leaf else " non-leaf")
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        inner = ", ".join(f"{n}: {_inner(getattr(tensor, n))}" for n in names)
        text += f" {{{inner}}}" + (f" context {context!r}" if context is not None else "")
    return text


def _inner(value: Any) -> str:
    return describe_tensor(value) if isinstance(value, torch.Tensor) else _short(value)


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, torch.nn.Module) else type(value).__name__
    return text if len(text) < 80 else text[:77] + "..."
