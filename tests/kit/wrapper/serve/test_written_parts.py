"""Rules of authors that write fields, on views that share these."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import WrapperTensor, aot_compile
from subclass_aot.errors import OperatorRuleError

aten = torch.ops.aten


class Scaled(WrapperTensor, views="broadcast"):
    """Codes with a scale for each row, and rules that write both."""

    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


class Bare(Scaled):
    """It does not say how it takes in values."""


class Full(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Full:
        scale = plain.abs().amax(1, keepdim=True) / 127
        return Full(plain / scale, scale)


@Scaled.implements(aten.mul_.Tensor)
def _(self: Any, other: Any) -> Any:
    self.scale.mul_(other)
    return self


@Scaled.implements(aten.div_.Tensor)
def _(self: Any, other: Any) -> Any:
    return NotImplemented


@Scaled.implements(aten.zero_)
def _(self: Any) -> Any:
    self.codes.zero_()
    return self


@Scaled.implements(aten.sgn.out)
def _(self: Any, *, out: Any) -> Any:
    out.codes.copy_(self.codes.sgn())
    out.scale.fill_(1)
    return out


@Scaled.implements(aten._foreach_mul_.Scalar)
def _(tensors: Any, scalar: Any) -> None:
    for tensor in tensors:
        tensor.scale.mul_(scalar)


def make(cls: Any) -> Any:
    torch.manual_seed(0)
    return cls(torch.randn(4, 6), torch.rand(4, 1) + 0.5)


PLACES: dict[str, Any] = {
    "columns": lambda w: w[:, :2],
    "detached": lambda w: w[:, 3:].detach(),
    "transposed": lambda w: w.t()[1:4].t(),
}
WRITES: dict[str, Any] = {
    "mul_": lambda v: v.mul_(3.0),
    "zero_": lambda v: v.zero_(),
    "out": lambda v: torch.sgn(v.clone(), out=v),
    "foreach": lambda v: torch._foreach_mul_([v], 3.0),
    "a rule that declines": lambda v: v.div_(2.0),
}


@pytest.mark.parametrize("mode", ["no_grad", "inference", "compiled"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_the_rest_stays(place: Any, write: Any, mode: str) -> None:
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        w = make(Full)
        exact = w.to_plain()
        write(place(exact))
        if mode == "compiled":
            aot_compile(lambda w: write(place(w)))(w)
        else:
            write(place(w))
        torch.testing.assert_close(w.to_plain(), exact)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_cannot_be_is_refused(compiled: bool) -> None:
    w = make(Bare)
    before = w.to_plain()
    program = lambda w: w[:, :2].mul_(3.0)  # noqa: E731
    with torch.no_grad(), pytest.raises(OperatorRuleError, match="scale is shared with the rest of the tensor"):
        (aot_compile(program) if compiled else program)(w)
    assert w.to_plain().equal(before)


def test_what_writes_no_shared_field_needs_nothing() -> None:
    w = make(Bare)
    exact = w.to_plain()
    exact[:, :2] = 0
    with torch.no_grad():
        w[:, :2].zero_()
    assert w.to_plain().equal(exact)


@pytest.mark.parametrize("cls", [Bare, Full])
def test_rows_and_wholes_are_written_by_the_rule(cls: Any) -> None:
    w = make(cls)
    codes = w.codes.clone()
    with torch.no_grad():
        w[1:3].mul_(3.0)
        w.mul_(2.0)
    assert w.codes.equal(codes)
