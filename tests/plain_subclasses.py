"""Subclasses of `Tensor` without the flatten protocol, as libraries write them; used by several tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _Methods:
    kind = "of a class"

    def area(self) -> Any:
        return self.sum() * 2  # type: ignore[attr-defined]

    @property
    def half(self) -> Any:
        return self / 2  # type: ignore[operator]


class Tag(_Methods, torch.Tensor):
    """Says nothing of functions of torch, so results are of the class."""


class Quiet(_Methods, torch.Tensor):
    """Turns `__torch_function__` off, so results are dense."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Quantity(_Methods, torch.Tensor):
    """Has an attribute, which its `__torch_function__` gives to results."""

    unit: str

    @staticmethod
    def __new__(cls, data: torch.Tensor, unit: str = "metre") -> Any:
        made: Any = data.as_subclass(cls)
        made.unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        unit = next((x.unit for x in args if isinstance(x, cls) and hasattr(x, "unit")), None)
        if isinstance(result, cls) and unit is not None and not hasattr(result, "unit"):
            result.unit = unit
        return result


class Image(_Methods, torch.Tensor):
    """Keeps its class for copies and conversions only, as those of torchvision."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs or {})
        if func in (torch.Tensor.clone, torch.Tensor.to, torch.Tensor.detach, torch.Tensor.requires_grad_):
            return result.as_subclass(cls)
        return result.as_subclass(torch.Tensor) if isinstance(result, cls) else result


class ScaledParameter(_Methods, nn.Parameter):
    """A parameter that knows how to be read, as those of HQQ and vllm."""

    scale: float

    def __new__(cls, data: torch.Tensor, requires_grad: bool = True, scale: float = 3.0) -> Any:
        made: Any = torch.Tensor._make_subclass(cls, data, requires_grad)
        made.scale = scale
        return made

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor) * self.scale


class BlockParameter(_Methods, nn.Parameter):
    """A parameter whose results are of its class and know its type, as that of diffusers for GGUF."""

    quant_type: int

    def __new__(cls, data: torch.Tensor, requires_grad: bool = True, quant_type: int = 3) -> Any:
        made: Any = torch.Tensor._make_subclass(cls, data, requires_grad)
        made.quant_type = quant_type
        return made

    def as_tensor(self) -> Any:
        return torch.Tensor._make_subclass(torch.Tensor, self, self.requires_grad)  # type: ignore[attr-defined]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        known = next((x.quant_type for x in args if isinstance(x, cls) and hasattr(x, "quant_type")), 3)
        if isinstance(result, torch.Tensor) and not result.requires_grad:
            return cls(result, requires_grad=False, quant_type=known)
        return result


CLASSES: tuple[Any, ...] = (Tag, Quiet, Quantity, Image, ScaledParameter, BlockParameter)


def of_class(cls: Any, requires_grad: bool, size: tuple[int, ...] = (3, 4)) -> Any:
    """A tensor of a class, always with the same values."""
    data = torch.linspace(-1, 2, torch.Size(size).numel()).reshape(size)
    if issubclass(cls, nn.Parameter):
        return cls(data, requires_grad=requires_grad)
    made = cls(data) if cls is Quantity else data.as_subclass(cls)
    with torch._C.DisableTorchFunctionSubclass():
        return made.requires_grad_() if requires_grad else made
