"""A wrapper as text: its `repr`, and a hash that is the same in every process."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import fields, is_dataclass
from enum import Enum

import torch

from subclass_aot.base import _torch
from subclass_aot.base.asked import refuse_history
from subclass_aot.kit.wrapper.kind import Wrapper


def describe(wrapper: Wrapper, of_program: bool = False) -> str:
    """Returns the `repr` of a wrapper: metadata only, so that it is cheap and safe on fake and meta inner tensors too.

    Args:
        wrapper: The wrapper.
        of_program: Whether a program asks for the text: sizes are numbers there, also while it is traced.

    Returns:
        Its class, outer metadata, fields and context.
    """
    parts = [_metadata(wrapper, of_program)]
    for name in wrapper.__tensor_flatten__()[0]:
        inner = getattr(wrapper, name)
        is_declared = hasattr(type(inner), "__wrapper_state__")
        parts.append(f"{name}={describe(inner, of_program) if is_declared else _metadata(inner, of_program)}")
    parts += [
        f"{name}={value!r}"
        for name, value in wrapper.__wrapper_state__().items()
        if name in wrapper.__wrapper_declaration__.fields
    ]
    if wrapper.grad_fn is not None:
        if of_program:
            refuse_history(wrapper.grad_fn)
        parts.append(f"grad_fn=<{_torch.autograd.name_of(wrapper.grad_fn)}>")
    elif wrapper.requires_grad:
        parts.append("requires_grad=True")
    return f"{type(wrapper).__name__}({', '.join(parts)})"


def _metadata(tensor: torch.Tensor, of_program: bool) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    place = "" if tensor.device.type == "cpu" else f" {tensor.device}"
    sizes = [int(n) if of_program and _torch.symbolic.is_symbolic(n) else n for n in tensor.shape]
    return f"{dtype}[{', '.join(map(str, sizes))}]{place}"


def stable_hash(wrapper: torch.Tensor) -> str:
    """Returns a hash of everything about a wrapper that a compiled program depends on; equal in every process."""
    return hashlib.sha256(_stable(wrapper).encode()).hexdigest()


def _stable(value: object) -> str:
    """Returns a text that is the same for equal values in every process, unlike `hash` and some `repr`s."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, torch.Tensor):
        outer = (
            tuple(value.shape),
            value.stride(),
            value.storage_offset(),
            value.dtype,
            value.device,
            value.requires_grad,
        )
        text = f"{kind}{outer}"
        if hasattr(value, "__tensor_flatten__"):
            names, context = value.__tensor_flatten__()
            text += f"{_stable(context)}{[(name, _stable(getattr(value, name))) for name in names]}"
        return text
    if isinstance(value, tuple):
        return f"{kind}({', '.join(map(_stable, value))})"
    if isinstance(value, frozenset):
        return f"{kind}({', '.join(sorted(map(_stable, value)))})"
    if isinstance(value, Enum):
        return f"{kind}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{kind}({', '.join(f'{f.name}={_stable(getattr(value, f.name))}' for f in fields(value))})"
    if value is None or isinstance(
        value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)
    ):
        return f"{kind}:{value!r}"
    return f"{kind}:{pickle.dumps(value).hex()}"
