"""`torch.tensor` of numbers that are symbols, and of lists that hold tensors: torch would read them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.meta import MetaTensor


def _tensor(recorder: Recorder, data: object, **options: Any) -> Any:
    """Makes a tensor of a number or a list that holds symbols or traced tensors."""
    return NotImplemented if options.pop("pin_memory", False) else _of(data, **options)


def _as_tensor(recorder: Recorder, data: object, dtype: torch.dtype | None = None, device: object = None) -> Any:
    return _of(data, dtype, device)


def _as_array(recorder: Recorder, obj: object, *, copy: Any = None, **options: Any) -> Any:
    return NotImplemented if copy is False else _of(obj, **options)


def _new_tensor(recorder: Recorder, self: torch.Tensor, data: object, **options: Any) -> Any:
    if options.pop("pin_memory", False):
        return NotImplemented
    like: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
    return _of(data, **like | {name: value for name, value in options.items() if value is not None})


def _of(data: object, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    if isinstance(data, MetaTensor) or not _holds_traced(data) or (made := _of_traced(data, dtype, device)) is None:
        return NotImplemented
    return made.requires_grad_() if requires_grad else made


def _holds_traced(data: object) -> bool:
    """Returns whether a list, or one inside of it, holds a traced tensor, or a number that is a symbol."""
    if type(data) is list or type(data) is tuple:
        return any(map(_holds_traced, data))
    return isinstance(data, MetaTensor | torch.SymInt | torch.SymFloat | torch.SymBool)


def _of_traced(data: Any, dtype: torch.dtype | None, device: Any) -> torch.Tensor | None:
    """Makes a tensor of lists of numbers and tensors of one element; None where they are anything else.

    What torch reads of each tensor is its value, without its history.
    """
    shape: list[int] = []
    leaves = [data]
    while all(type(part) is list or type(part) is tuple for part in leaves):
        if not leaves or any(len(part) != len(leaves[0]) for part in leaves):
            return None
        shape.append(len(leaves[0]))
        leaves = [part for each in leaves for part in each]
    kinds = [_dtype_of(leaf) for leaf in leaves]
    if None in kinds:
        return None
    dtype = dtype or functools.reduce(torch.promote_types, kinds)  # type: ignore[arg-type]
    to = torch.get_default_device() if device is None else device
    made = [
        leaf.detach().reshape(()).to(to, dtype)
        if isinstance(leaf, MetaTensor)
        else torch.full((), leaf, dtype=dtype, device=to)
        for leaf in leaves
    ]
    return torch.stack(made).reshape(shape) if shape else made[0]


def _dtype_of(value: object) -> torch.dtype | None:
    """Returns the dtype that an element asks for; None if it is neither a number nor a traced tensor of one element."""
    if isinstance(value, MetaTensor):
        return value.dtype if all(type(n) is int and n == 1 for n in value.shape) else None
    if type(value) in (bool, torch.SymBool):
        return torch.bool
    if type(value) in (int, torch.SymInt):
        return torch.int64
    return torch.get_default_dtype() if type(value) in (float, torch.SymFloat) else None


TENSORS_OF_NUMBERS: dict[Any, Callable[..., Any]] = {
    torch.tensor: _tensor, torch.as_tensor: _as_tensor, torch.asarray: _as_array, torch.Tensor.new_tensor: _new_tensor,
}  # fmt: skip
"""What is called in place of functions of torch, with the recorder as first argument."""
