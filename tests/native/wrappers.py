"""Wrapper classes that kernels serve, or leave to Python."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.kit.wrapper import Outer, WrapperTensor, structure

aten: Any = torch.ops.aten


class Named(WrapperTensor, fallback="each"):
    """Has context."""

    left: torch.Tensor
    label: object
    right: torch.Tensor
    number: float = 0.5


class Child(TwoTensor):
    """Is registered by itself."""


class Twice(WrapperTensor, fallback="each"):
    """Looks like no inner tensor."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, size=(*self.codes.shape, 2), dtype=torch.float64)


class Product(WrapperTensor, fallback="each"):
    """Stands for something, and is served field by field nevertheless."""

    first: torch.Tensor
    second: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.first * self.second


class Coded(WrapperTensor, views="broadcast"):
    """Is served through what it stands for, and cannot be made of that."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


class Added(WrapperTensor, fallback="each"):
    """Has a rule of its own."""

    left: torch.Tensor
    right: torch.Tensor


@Added.implements(aten.add.Tensor)
def _(x: Any, y: Any, *, alpha: float = 1) -> Any:
    x, y = (Added(t, t) if type(t) is torch.Tensor else t for t in (x, y))
    return Added(x.left - y.left, x.right - y.right)


class Masked(WrapperTensor, fallback="each"):
    """Has structure."""

    content: torch.Tensor
    mask: torch.Tensor = structure()


class Shown(WrapperTensor, fallback="each"):
    """Has fields of which torch has properties."""

    real: torch.Tensor
    imag: torch.Tensor


def dense(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def two(cls: Any, *size: int, seed: int = 0) -> Any:
    return cls(dense(*size, seed=seed), dense(*size, seed=seed + 100))
