"""Declared classes with one mistake each: what it is, and the clauses that name it, say the docstrings."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import Int8Weight, Outer, TwoTensor, WrapperTensor
from tests.testing.contract.classes import Scaled, Signed, aten


class NoOwnContext(TwoTensor):
    """It cannot make a gradient of its own context.

    Clauses:
        30 tangent of the own context
    """

    def __coerce_same_metadata_as_tangent__(self, context: object, expected_type: type | None = None) -> Any:
        return None


class Growing(TwoTensor):
    """Its canonical form is twice as long.

    Clauses:
        31 canonical tangent
    Also: 32
    """

    def __coerce_tangent_metadata__(self) -> Any:
        return Growing(torch.cat([self.a, self.a]), torch.cat([self.b, self.b]))


class OtherDtype(Scaled):
    """The dtype outside is another than operators see.

    Clauses:
        2 outer metadata
    Also: 22, 24, 25, 27, 41, 43
    """

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=torch.float64)


class ReadsNoSign(Scaled):
    """It reads values without their sign.

    Clauses:
        0 drawn values
    Also: 22, 23, 24, 27, 32, 38, 40
    """

    def to_plain(self) -> torch.Tensor:
        return self.codes.abs() * self.scale


class SizeOfValues(WrapperTensor):
    """Its size is read of values.

    Clauses:
        5 fake
        5 meta
    Also: 21, 24, 38
    """

    flat: torch.Tensor
    sizes: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer((len(self.sizes), int(self.sizes.max())), None, dtype=self.flat.dtype, device=self.flat.device)

    def to_plain(self) -> torch.Tensor:
        return self.flat.view(len(self.sizes), -1)


class SharesScale(Scaled):
    """A clone shares the scale.

    Clauses:
        24 clone
    Also: 27
    """


@SharesScale.implements(aten.clone.default)
def _(x: Any, memory_format: Any = None) -> Any:
    return SharesScale(x.codes.clone(memory_format=memory_format), x.scale)


class ZerosShareScale(Scaled):
    """Zeros share the scale of the tensor that they are like.

    Clauses:
        24 new tensors
    Also: 27
    """


@ZerosShareScale.implements(aten.zeros_like.default)
def _(x: Any, **kwargs: Any) -> Any:
    return ZerosShareScale(torch.zeros_like(x.codes), x.scale)


class ShortGroup(WrapperTensor, views="blocks"):
    """A scale is for eight columns, of which the last may have fewer, and blocks are all of one length.

    Clauses:
        22 cuts
    """

    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale.repeat_interleave(8, 1)[:, : self.codes.shape[1]]


class Divided(WrapperTensor, fallback="each"):
    """Operators work on each field, of which the second divides the first.

    Clauses:
        24 zeros_like
    Also: 0, 23, 25, 26, 27, 28, 32, 35, 38, 40, 41
    """

    above: torch.Tensor
    below: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.above / self.below


class KeepsScale(Scaled):
    """New values are held by the scale that is there, which is anything in a tensor that is empty.

    Clauses:
        24 empty_like
    Also: 26
    """

    def from_plain(self, plain: torch.Tensor) -> Any:
        return KeepsScale(plain / self.scale, self.scale.clone())


class FirstFieldOnly(TwoTensor):
    """`torch.equal` looks at one field.

    Clauses:
        27 equal
    """


@FirstFieldOnly.implements(aten.equal.default)
def _(one: Any, other: Any) -> bool:
    return bool(aten.equal.default(one.a, other.a))


class TakesOneField(TwoTensor):
    """Its sum is that of one field, twice.

    Clauses:
        27 x.sum(0)
        27 x.sum(-1)
    """


@TakesOneField.implements(aten.sum.dim_IntList)
def _(x: Any, *args: Any, **kwargs: Any) -> Any:
    total = aten.sum.dim_IntList(x.a, *args, **kwargs)
    return TakesOneField(total, total.clone())


class ForgetsNote(Scaled):
    """A file does not hold its note.

    Clauses:
        10 attributes
        37 pickle
        37 copy.copy
    """

    note: str = ""

    def from_plain(self, plain: torch.Tensor) -> Any:
        return ForgetsNote(plain.clone(), torch.ones_like(self.scale), self.note)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _forgetful, (self.codes, self.scale, self.requires_grad)


def _forgetful(codes: torch.Tensor, scale: torch.Tensor, requires_grad: bool) -> Any:
    return ForgetsNote(codes, scale).requires_grad_(requires_grad)


class SharedCopy(Scaled):
    """A deep copy shares the memory.

    Clauses:
        37 copy.deepcopy
    """

    def __deepcopy__(self, memo: Any) -> Any:
        return SharedCopy(self.codes, self.scale).requires_grad_(self.requires_grad)


class CoarseState(Int8Weight):
    """`zeros_like` keeps the class, so optimizers keep their state in eight bits.

    Clauses:
        40 AdamW
        40 AdamW(foreach=True)
    """


@CoarseState.implements(aten.zeros_like.default)
def _(x: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    return CoarseState(torch.zeros_like(x.codes, device=device), torch.ones_like(x.scale, dtype=dtype, device=device))


class CopyingSlice(Scaled):
    """A slice is a copy.

    Clauses:
        22 x[:1]
        22 x[..., 1:]
        22 x[..., :half]
        22 x.narrow(0, 0, 1)
    Also: 23, 43
    """


@CopyingSlice.implements(aten.slice.Tensor)
def _(x: Any, *args: Any) -> Any:
    codes = aten.slice.Tensor(x.codes, *args)
    dim = args[0] if args else 0
    scale = aten.slice.Tensor(x.scale, *args) if x.scale.shape[dim] == x.codes.shape[dim] else x.scale
    return CopyingSlice(codes.clone(), scale.clone())


class ForgottenTranspose(Scaled):
    """`t` forgets to transpose.

    Clauses:
        22 x.t()
        22 x.transpose(0, -1)
    Also: 23, 25, 27, 29, 32, 41
    """


@ForgottenTranspose.implements(aten.t.default, aten.transpose.int)
def _(x: Any, *dims: int) -> Any:
    return ForgottenTranspose(x.codes, x.scale)


class SharedScale(Scaled):
    """Zeros are written into the scale, which whole rows have in common; a rule would be kept from that.

    Clauses:
        23 write to some columns
        23 write to a transposed view
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is not aten.zero_.default:
            return super().__torch_dispatch__(func, types, args, kwargs)
        args[0].codes.fill_(1)
        args[0].scale.zero_()
        return args[0]


class CopiesWrong(Scaled):
    """`copy_` of another of the class takes the scale, and leaves the codes.

    Clauses:
        23 x.copy_(x)
    Also: 24, 38, 43
    """


@CopiesWrong.implements(aten.copy_.default)
def _(x: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(source, CopiesWrong):
        return NotImplemented
    x.scale.copy_(source.scale)
    return x


class DropsSign(Signed):
    """A product has no sign, whatever the context of its factor.

    Clauses:
        27 x * 2 + 1
        32 tangent of another context
    Also: 23, 28, 32, 34, 35, 36, 40, 41
    """


@DropsSign.implements(aten.mul.Tensor)
def _(x: Any, factor: Any) -> Any:
    return DropsSign(x.codes * factor) if isinstance(factor, int | float) else NotImplemented


class SecondIsFirst(Scaled):
    """What it divides by is divided.

    Clauses:
        27 drawn calls
    Also: 27
    """


@SecondIsFirst.implements(aten.div.Tensor)
def _div(one: Any, other: Any) -> torch.Tensor:
    if isinstance(one, SecondIsFirst):
        return one.to_plain() / (other.to_plain() if isinstance(other, SecondIsFirst) else other)
    return other.to_plain() / one  # type: ignore[no-any-return]


class MovesOne(Scaled):
    """A move leaves the scale where it is.

    Clauses:
        38 to(device)
    """


@MovesOne.implements(aten._to_copy.default)
def _(x: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    scale = x.scale.to(dtype or x.scale.dtype, copy=True)
    return MovesOne(x.codes.to(device=device, dtype=dtype, copy=True), scale)


class EmptyInPart(Scaled):
    """An empty tensor on another device has its scale where it was.

    Clauses:
        24 device
        38 to_empty
    """


@EmptyInPart.implements(aten.empty_like.default)
def _(x: Any, **kwargs: Any) -> Any:
    return EmptyInPart(torch.empty_like(x.codes, **kwargs), x.scale.clone())


class ForgetsAlpha(Scaled):
    """A sum of two of them forgets `alpha`, and one with a dense tensor does not.

    Clauses:
        27 drawn calls
    """


@ForgetsAlpha.implements(aten.add.Tensor)
def _(a: Any, b: Any, *, alpha: float = 1) -> Any:
    if isinstance(a, ForgetsAlpha) and isinstance(b, ForgetsAlpha):
        return a.to_plain() + b.to_plain()
    return NotImplemented


class FirstContext(Signed):
    """Of two signs `cat` takes the first.

    Clauses:
        27 another context
    """


@FirstContext.implements(aten.cat.default)
def _(tensors: Any, dim: int = 0) -> Any:
    if not all(isinstance(each, FirstContext) for each in tensors):
        return NotImplemented
    return FirstContext(torch.cat([each.codes for each in tensors], dim), tensors[0].negated)
