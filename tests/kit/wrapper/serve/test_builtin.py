"""The rules that every wrapper class has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from tests.kit.wrapper.classes import Rounded, Scaled, scaled


def test_copy_field_by_field_needs_fields_that_fit() -> None:
    x, y = scaled(), scaled()
    y.codes.zero_()
    x.copy_(y)
    assert not x.codes.any()
    with pytest.raises(OperatorRuleError, match="do not fit into"):
        x.copy_(scaled(scale=(1, 4)))


def test_moving_and_converting() -> None:
    x = scaled()
    half = x.to(torch.bfloat16)
    assert (half.dtype, half.codes.dtype, half.scale.dtype) == (torch.bfloat16, torch.int64, torch.bfloat16)
    assert x.to("meta").table.device.type == "meta" and x.to("meta").device.type == "meta"
    assert type(x.clone()) is Scaled and x.clone().codes is not x.codes
    assert x.to(torch.int32).dtype == torch.int32 and type(x.to(torch.int32)) is torch.Tensor

    class Fixed(WrapperTensor):
        codes: torch.Tensor

        def outer_metadata(self) -> Outer:
            return Outer.like(self.codes, dtype=torch.float32)

    with pytest.raises(OperatorRuleError, match=r"no field has the outer dtype torch\.float32"):
        Fixed(torch.zeros(2, dtype=torch.int8)).to(torch.float64)
    with pytest.raises(OperatorRuleError, match="needs a to_plain method"):
        Fixed(torch.zeros(2, dtype=torch.int8)).to(torch.int64)


def test_making_room() -> None:
    x = Rounded(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1))
    assert type(torch.empty_like(x)) is Rounded and torch.empty_like(x).shape == (2, 3)
    new = x.new_zeros(5, 7)
    assert type(new) is Rounded and (new.codes.shape, new.step.shape) == ((5, 7), (5, 1))
    assert x.new_empty((2, 3), dtype=torch.float64).dtype == torch.float64
    assert type(x.new_empty_strided((2, 3), (3, 1))) is Rounded
    with pytest.raises(OperatorRuleError, match="strides"):
        x.new_empty_strided((2, 3), (1, 2))


def test_room_of_another_rank_is_dense_where_the_class_says_what_it_stands_for() -> None:
    class Silent(WrapperTensor):
        codes: torch.Tensor
        step: torch.Tensor

    x = Rounded(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1))
    assert x.new_zeros(5).equal(torch.zeros(5)) and x.new_empty(2, 2, 2, dtype=torch.float64).dtype == torch.float64
    assert x.new_empty_strided((5,), (2,)).stride() == (2,)
    with pytest.raises(OperatorRuleError, match="it cannot tell"):
        Silent(torch.ones(2, 3), torch.ones(2, 1)).new_zeros(5)


class Halves(WrapperTensor):
    """A complex tensor as two real ones."""

    one: torch.Tensor
    other: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.one, dtype=self.one.dtype.to_complex())

    def to_plain(self) -> torch.Tensor:
        return torch.complex(self.one, self.other)


def test_real_parts_follow_the_dtype_of_a_complex_tensor() -> None:
    x = Halves(torch.randn(2, 3), torch.randn(2, 3))
    y = x.to(torch.complex128)
    assert type(y) is Halves and (y.dtype, y.one.dtype) == (torch.complex128, torch.float64)
    torch.testing.assert_close(y.to_plain(), x.to_plain().to(torch.complex128))
    assert torch.empty_like(x, dtype=torch.complex128).other.dtype == torch.float64
    assert x.new_zeros(2, 3, dtype=torch.complex128).to_plain().equal(torch.zeros(2, 3, dtype=torch.complex128))


class Logarithm(WrapperTensor, views="broadcast"):
    """Zeros in it mean one."""

    log: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.log.exp()


class WrittenLogarithm(Logarithm):
    def from_plain(self, plain: torch.Tensor) -> WrittenLogarithm:
        return WrittenLogarithm(plain.log())


class Codebook(WrapperTensor, views={"levels": "keep"}):
    codes: torch.Tensor
    levels: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.levels.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.levels[self.codes.long()]

    def from_plain(self, plain: torch.Tensor) -> Codebook:
        return Codebook((plain[..., None] - self.levels).abs().argmin(-1).to(torch.uint8), self.levels)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: WrittenLogarithm(torch.zeros(2, 2)),
        lambda: Codebook(torch.zeros(2, 2, dtype=torch.uint8), torch.tensor([-1.0, 0.0, 1.0])),
    ],
)
def test_new_zeros_mean_zero_whatever_the_fields_mean(make: Any, compiled: bool, dynamic: bool) -> None:
    program: Any = lambda x: x.new_zeros(3, 2)  # noqa: E731
    new = (aot_compile(program, dynamic=dynamic) if compiled else program)(make())
    assert type(new) is type(make()) and new.to_plain().equal(torch.zeros(3, 2))


def test_new_zeros_that_mean_something_else_are_refused() -> None:
    x = Logarithm(torch.zeros(2, 2))
    with pytest.raises(OperatorRuleError, match="inner tensors of zeros do not mean zero"):
        x.new_zeros(3, 2)
    assert type(x.new_empty(3, 2)) is Logarithm


def test_making_room_for_fields_that_rows_share() -> None:
    x = scaled(3, 4, scale=(4,))
    new = x.new_zeros(2, 6)
    assert type(new) is Scaled and (new.codes.shape, new.scale.shape, new.shift.shape) == ((2, 6), (6,), ())
    assert not new.scale.any() and not new.shift.any()
    assert new.table.equal(x.table) and new.table is not x.table  # a table is the same for every tensor of a kind
    new.table.zero_()
    assert x.table.all() and x.new_zeros((2, 6), device="meta").table.is_meta
    empty = x.new_empty(0)
    assert type(empty) is Scaled and empty.shape == (0,) and empty.table.equal(x.table)


def test_making_room_on_each_inner_tensor() -> None:
    class Rows(WrapperTensor, fallback="each"):
        content: torch.Tensor
        sums: torch.Tensor

    new = Rows(torch.ones(3, 4), torch.ones(3, 1)).new_zeros(2, 6)
    assert (new.content.shape, new.sums.shape) == ((2, 6), (2, 1))
    assert Rows(torch.ones(3), torch.ones(3)).new_zeros(2, 6).sums.shape == (2, 6)
    with pytest.raises(OperatorRuleError, match=r"of sums\[5\] in a tensor of \[3, 4\], it cannot tell"):
        Rows(torch.ones(3, 4), torch.ones(5)).new_zeros(2, 6)


def test_without_declared_views_only_views_that_change_nothing() -> None:
    class Bare(WrapperTensor):
        payload: torch.Tensor

    x = Bare(torch.zeros(3, 4))
    assert type(x.view(3, 4)) is Bare and type(x.expand(3, 4)) is Bare
    with pytest.raises(OperatorRuleError, match='Bare declares no views="broadcast"'):
        x.view(12)


def test_views_are_not_advised_where_it_would_not_help() -> None:
    class Packed(WrapperTensor):
        packed: torch.Tensor

        def outer_metadata(self) -> Outer:
            return Outer((self.packed.shape[0], self.packed.shape[1] * 2), None, torch.float32, self.packed.device)

    with pytest.raises(OperatorRuleError, match=r"packed\[2, 4\] does not line up with \[2, 8\], so it would not help"):
        Packed(torch.zeros(2, 4, dtype=torch.uint8)).t()


class Log(WrapperTensor):
    """Zeros in its field mean ones."""

    logarithm: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.logarithm.exp()

    def from_plain(self, plain: torch.Tensor) -> Log:
        return Log(plain.log())


@pytest.mark.parametrize("fallback", ["plain", "error"])
@pytest.mark.parametrize("compiled", [False, True])
def test_zeros_like_what_has_a_dense_meaning_are_dense(fallback: Any, compiled: bool) -> None:
    class Of(Log, fallback=fallback):
        pass

    program = aot_compile(torch.zeros_like) if compiled else torch.zeros_like
    zeros = program(Of(torch.ones(2, 3)))
    assert type(zeros) is torch.Tensor and zeros.shape == (2, 3) and not zeros.any()
    assert torch.zeros_like(Of(torch.ones(2, 3)), dtype=torch.int8).dtype == torch.int8


@pytest.mark.parametrize("how", [{"foreach": False}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad])
@pytest.mark.parametrize("cls", [Log, Int8Weight, Rounded])
def test_optimizers_keep_their_state_in_full(optimizer: Any, cls: Any, how: Any) -> None:
    """Small second moments would be zero in eight bits, and a step divides by their root."""
    start = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) + 1
    made = {
        Log: lambda: Log(start.log()),
        Int8Weight: lambda: Int8Weight.from_float(start),
        Rounded: lambda: Rounded((start * 1000).round().long(), torch.full((4, 1), 0.001)),
    }[cls]()
    momentum = {"momentum": 0.9} if optimizer in (torch.optim.SGD, torch.optim.RMSprop) else {}
    ends = []
    for weight in (torch.nn.Parameter(made), torch.nn.Parameter(made.to_plain().clone())):
        if how == {"fused": True} and optimizer is torch.optim.RMSprop:
            how = {}  # which has no such kernel
        steps = optimizer([weight], 0.01, **momentum, **how)
        for _ in range(5):
            steps.zero_grad()
            (weight * weight).sum().backward()
            steps.step()
        ends.append(weight.detach())
    assert (ends[0].to_plain() - ends[1]).abs().max() < 0.03


class Coded(WrapperTensor):
    """Its outer dtype stands in its context, as in GGUF and in torchao's newer classes."""

    codes: torch.Tensor
    scale: torch.Tensor
    shown: torch.dtype = torch.float32
    packed: torch.dtype = torch.int8

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.shown)

    def to_plain(self) -> torch.Tensor:
        return (self.codes.float() * self.scale).to(self.shown)


def coded() -> Coded:
    return Coded(torch.randint(-9, 9, (4, 8), dtype=torch.int8), torch.rand(4, 1))


DOORS: dict[str, Any] = {
    "eager": lambda function: function,
    "aot_compile": aot_compile,
    "torch.compile": lambda function: torch.compile(function, backend="subclass_aot"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.to(torch.bfloat16),
        lambda x: x.half(),
        lambda x: x.double(),
        lambda x: torch.empty_like(x, dtype=torch.bfloat16),
        lambda x: x.new_empty(4, 8, dtype=torch.float16),
    ],
    ids=["to", "half", "double", "empty_like", "new_empty"],
)
def test_an_outer_dtype_in_the_context_follows(convert: Any, door: str, fresh_dynamo: None) -> None:
    x = coded()
    got, wanted = DOORS[door](convert)(x), convert(torch.empty(4, 8)).dtype
    assert type(got) is Coded and got.dtype == got.shown == wanted
    assert got.packed == torch.int8 and got.codes.dtype == torch.int8 and x.shown == torch.float32


@pytest.mark.parametrize("door", DOORS)
def test_modules_and_autocast_convert_it(door: str, fresh_dynamo: None) -> None:
    layer = torch.nn.Linear(8, 4)
    layer.weight = torch.nn.Parameter(coded(), requires_grad=False)
    x = torch.randn(2, 8)

    def program(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    got = DOORS[door](program)(x)
    assert got.dtype == torch.bfloat16 and torch.equal(got, program(x))
    layer.to(torch.float16)
    assert layer.weight.dtype == torch.float16 and layer(x.half()).dtype == torch.float16


def test_several_such_fields_are_ambiguous() -> None:
    class Twice(Coded):
        other: torch.dtype = torch.float32

    with pytest.raises(OperatorRuleError, match=r"no field has the outer dtype torch\.bfloat16"):
        Twice(coded().codes, torch.rand(4, 1), torch.bfloat16, torch.int8, torch.bfloat16).half()
