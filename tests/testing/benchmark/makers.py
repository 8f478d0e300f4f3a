"""Classes to measure: some that refuse, and one in which everything is slow."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.two_tensor import TwoTensor

import subclass_aot as sa


def torchs_two_tensor() -> Any:
    """Torch's own."""
    return TwoTensor(torch.randn(4, 4), torch.randn(4, 4))


class Refusing(sa.WrapperTensor, fallback="error"):
    """Has no operators but those that are built in."""

    value: torch.Tensor


def refusing() -> Any:
    """A tensor of it."""
    return Refusing(torch.randn(4, 4))


class Context:
    """Unhashable, and unlike every other."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


class Slow(torch.Tensor):
    """Does each thing in a way that costs."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)  # type: ignore[attr-defined]

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held.clone()

    def __tensor_flatten__(self) -> tuple[list[str], object]:
        sum(range(1000))
        return ["held"], Context()

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: object, size: Any, stride: Any) -> Any:
        return Slow(inner["held"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:
            return Slow(args[0].held)
        raise NotImplementedError(f"Slow has no {func}\nand says more")


def slow() -> Any:
    """A tensor of it."""
    return Slow(torch.randn(4, 4))


def fails() -> Any:
    """Gives no tensor."""
    raise RuntimeError("not today\nor ever")


def dense() -> Any:
    """Gives a tensor that is no wrapper."""
    return torch.ones(2)
