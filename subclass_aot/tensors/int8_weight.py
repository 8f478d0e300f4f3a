"""A frozen weight in eight bits: codes, a scale for each row, and products that never build the float weight."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base._torch import quantized
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from subclass_aot.tensors.products import int8_mm, product, scaled

aten: Any = torch.ops.aten

FEW = 8
"""As many rows of the other operand are a product whose time goes into reading the codes, which the kernel does once
for each row. Of more, the product with codes in float is faster."""


class Int8Weight(WrapperTensor, views="broadcast"):
    """A `[M, N]` weight that stands for `(codes - zero_point) * scale`.

    >>> weight = Int8Weight.from_float(torch.tensor([[1.0, -2.0], [0.5, 0.25]]))
    >>> weight
    Int8Weight(float32[2, 2], codes=int8[2, 2], scale=float32[2, 1])
    >>> torch.nn.functional.linear(torch.eye(2), weight)
    tensor([[ 1.0079,  0.5000],
            [-2.0000,  0.2520]])
    """

    codes: torch.Tensor  # int8[M, N]
    scale: torch.Tensor  # float[M, 1]
    zero_point: torch.Tensor | None = None  # float[M, 1]

    def outer_metadata(self) -> Outer:
        if not Outer.lines_up(self.codes, self.scale, self.zero_point):
            raise Outer.misfit(self, "codes[M, N], and scale and zero_point[M or 1, N or 1]")
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def centered(self) -> torch.Tensor:
        """Returns `codes - zero_point` in the dtype of the scale, as a tensor of its own."""
        codes = self.codes.to(self.scale.dtype, copy=True)
        return codes if self.zero_point is None else codes - self.zero_point

    def to_plain(self) -> torch.Tensor:
        return scaled(self.centered(), self.scale)

    def from_plain(self, plain: torch.Tensor) -> Int8Weight:
        """Returns `plain` in as many scales, along the same dims, as this weight has."""
        dims = [dim for dim in range(plain.dim()) if self.scale.shape[dim] == 1]
        codes, scale = quantize(plain.to(self.scale.dtype), dims)
        zero_point = None if self.zero_point is None else torch.zeros_like(self.zero_point)
        return type(self)(codes, scale, zero_point)

    @classmethod
    def from_float(cls, weight: torch.Tensor) -> Int8Weight:
        """Rounds a float weight `[M, N]` to 255 levels, symmetric about zero, for each row."""
        return cls(*quantize(weight.detach(), [-1]))


def quantize(weight: torch.Tensor, dims: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns codes and scale of a float tensor; the scale is shared along `dims`, and there it has size 1."""
    magnitude = weight.abs().amax(dims, keepdim=True) if dims else weight.abs()
    scale = magnitude.clamp(min=torch.finfo(weight.dtype).tiny * 127) / 127
    codes = (weight / scale).round().clamp(-127, 127)  # in bfloat16, the largest is 127.5 steps of a scale rounded down
    return codes.to(torch.int8), scale


@Int8Weight.implements(aten.mm.default)
def mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    if isinstance(b, Int8Weight):
        a = a.to_plain() if isinstance(a, Int8Weight) else a
        if b.scale.shape[:-1] == (1,):  # transposed: one scale for each column of the product
            codes = b.codes.t()
            if b.zero_point is None and quantized.takes_int8(a, codes, b.scale) and quantized.has_few_rows(a, FEW):
                return int8_mm(a.contiguous(), codes, b.scale.view(-1))
            if b.zero_point is None and (c := product(a, "Int8Weight", (codes, b.scale.t()))) is not NotImplemented:
                return c
            return b.scale * (a @ b.centered())  # the other way round, inductor takes the kernel, of many rows too
        return (a * b.scale.t()) @ b.centered() if b.scale.shape[1:] == (1,) else a @ b.to_plain()
    return mm(b.t(), a.t()).t() if isinstance(a, Int8Weight) else NotImplemented  # of an `out` alone


@Int8Weight.implements(aten.addmm.default)
def addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    found = mm(a, b)
    return found if found is NotImplemented else plus(bias, found, beta, alpha)  # it is where none but the bias is one


def plus(bias: torch.Tensor, product: torch.Tensor, beta: float, alpha: float) -> torch.Tensor:
    """Returns `beta * bias + alpha * product`."""
    return (bias if beta == 1 else beta * bias) + (product if alpha == 1 else alpha * product)


@Int8Weight.implements(aten.view.default, aten._unsafe_view.default)
def view(weight: Int8Weight, size: list[int]) -> Any:
    if len(size) != 1 or weight.dim() == 1:
        return NotImplemented  # rows stay together, and their scales with them: the rule for views sees to that
    scale, zero = weight.scale.expand(weight.shape).reshape(size), weight.zero_point
    zero = zero if zero is None else zero.expand(weight.shape).reshape(size)
    return type(weight)(weight.codes.view(size), scale, zero)
