"""Which classes and operators the kernels are told of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int4Weight, Int8Weight, aot_compile
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from subclass_aot.kit.wrapper.serve import kernels
from subclass_aot.kit.wrapper.serve.rules import forget_handlers
from tests.native.both_ways import served

aten: Any = torch.ops.aten

pytestmark = pytest.mark.skipif(
    not kernels.INSTALLED, reason="the accelerator is optional: without it there is only Python"
)


def dense() -> torch.Tensor:
    return torch.arange(4.0)


class Written(WrapperTensor, fallback="each"):
    """Takes itself apart."""

    left: torch.Tensor
    right: torch.Tensor

    def __tensor_flatten__(self) -> Any:
        return ["right", "left"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return cls(inner["left"], inner["right"])


class Counted(WrapperTensor, fallback="each"):
    """Has a say in how its attributes are read."""

    left: torch.Tensor
    right: torch.Tensor

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Renamed(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor


class Computed(Renamed):
    """Has a property in the place of a field."""


class Optional(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor | None = None


class Several(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]


class Ruled(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.left, dtype=torch.float64)


Computed.left = property(lambda self: self.__dict__["left"], lambda self, value: None)  # type: ignore[assignment]

IN_PYTHON: dict[str, Any] = {
    "a flatten of its own": lambda: Written(dense(), dense()),
    "attributes of its own": lambda: Counted(dense(), dense()),
    "several in a field": lambda: Several([dense(), dense()]),
}


@pytest.mark.parametrize("which", IN_PYTHON)
def test_classes_that_python_serves(which: str) -> None:
    make = IN_PYTHON[which]
    assert not served(lambda: (make() + make(), make().neg(), make().view(2, 2)))["aten::neg"]


def test_a_property_in_the_place_of_a_field() -> None:
    x = Renamed(dense(), dense())
    x.__class__ = Computed
    assert not served(lambda: x.neg())


def test_an_outer_rule_is_asked_of_what_is_new() -> None:
    hits = served(lambda: (x := Ruled(dense(), dense()), x.detach(), x.neg(), x + x, x.view(2, 2), x.mul_(2)))
    assert set(hits) == {"aten::detach", "aten::neg", "aten::add.Tensor", "aten::view", "aten::mul_.Tensor"}
    assert Ruled(dense(), dense()).neg().dtype is torch.float64


def test_an_alias_is_not_asked_of_an_outer_rule() -> None:
    weight = Int4Weight.from_float(torch.randn(4, 8), group=4)
    assert set(served(lambda: (weight.detach(), weight[:2].detach(), weight * 2))) == {"aten::detach"}


def test_it_looks_as_it_does_whatever_its_rule_says_now() -> None:
    """Made with other strides than its rule gives, an alias has these, in C++ as in Python."""
    inner = {"left": torch.ones(2, 3), "right": torch.ones(2, 3)}
    x = Ruled.__tensor_unflatten__(inner, None, (2, 3), (1, 2))
    assert served(lambda: (x.detach(), aten.alias(x)))
    assert x.detach().stride() == (1, 2)


@pytest.mark.parametrize("has_right", [False, True])
def test_fields_that_may_be_absent(has_right: bool) -> None:
    def program() -> Any:
        x, y = (Optional(dense(), *([dense() + 1] * has_right)) for _ in range(2))
        return x + y, x.neg(), x.mul_(y), x.view(2, 2), x.detach(), x.max(0)

    assert set(served(program)) > {"aten::add.Tensor", "aten::neg", "aten::mul_.Tensor", "aten::view", "aten::detach"}


def test_fields_that_are_there_on_one_side_alone_are_refused_as_in_python() -> None:
    more, less = Optional(dense(), dense()), Optional(dense())
    for x, y in ((more, less), (less, more)):
        hits = served(lambda x=x, y=y: (x + y,))
        assert not hits
        assert not served(lambda x=x, y=y: x.mul_(y))
    less.__dict__["right"] = None
    assert not served(lambda: less.neg())


def test_a_class_of_which_nothing_has_to_be_there() -> None:
    class Bare(WrapperTensor, fallback="each"):
        left: torch.Tensor | None = None
        right: torch.Tensor | None = None

    def program() -> Any:
        return Bare(dense()).neg(), Bare(None, dense()).neg(), Bare(dense(), dense()) + 1

    assert served(program)["aten::neg"] == 2


def test_views_of_fields_that_line_up() -> None:
    for shape in ((4, 1), (1, 8), (1, 1), (4, 8)):
        for zero_point in (None, torch.ones(shape)):
            codes = torch.arange(32, dtype=torch.int8).view(4, 8)

            def program(codes: Any = codes, shape: Any = shape, zero_point: Any = zero_point) -> Any:
                weight = Int8Weight(
                    codes.clone(), torch.rand(shape), None if zero_point is None else zero_point.clone()
                )
                turned = weight.t()
                turned[1].mul_(2)
                return weight, turned, turned.t(), weight.transpose(0, 1), weight.permute(1, 0), weight.unsqueeze(0)

            hits = served(program)
            assert hits["aten::t"] >= 2
            assert hits["aten::transpose.int"] and hits["aten::permute"] and hits["aten::unsqueeze"]


def test_views_of_fields_that_do_not_line_up() -> None:
    """A field of fewer dims is made longer, and one of other sizes is refused: both in Python."""
    codes = torch.arange(6, dtype=torch.int8).view(2, 3)
    for scale in (torch.ones(3), torch.tensor(2.0), torch.ones(2, 2)):
        assert not served(lambda scale=scale: Int8Weight(codes, scale).t())["aten::t"]


def test_a_kept_field_is_the_same_for_every_view() -> None:
    class Looked(WrapperTensor, views={"table": "keep"}):
        codes: torch.Tensor
        table: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.table.view(-1)[self.codes]

    table = torch.rand(2, 2)
    assert not served(lambda: Looked(torch.tensor([[0, 3], [1, 2]]), table).t())
    assert torch.equal(Looked(torch.tensor([[0, 3], [1, 2]]), table).t().table, table)


def test_a_view_that_shares_fields_is_turned_in_python() -> None:
    def program() -> Any:
        weight = Int8Weight(torch.arange(32, dtype=torch.int8).view(4, 8), torch.rand(4, 1))
        part = weight[:, 1:3]
        turned = part.t()
        turned.mul_(2)
        return weight, part.to_plain(), turned.to_plain()

    assert not served(program)["aten::t"]


def test_linear_layers_in_inference_and_training() -> None:
    def program() -> Any:
        torch.manual_seed(0)
        weight = Int8Weight.from_float(torch.randn(4, 8))
        x, bias = torch.randn(3, 8, requires_grad=True), torch.randn(4, requires_grad=True)
        out = torch.nn.functional.linear(x, weight, bias)
        out.sum().backward()
        with torch.no_grad():
            return out, x.grad, bias.grad, torch.nn.functional.linear(x, weight)

    hits = served(program)
    assert hits["aten::t"] == 3
    with torch.inference_mode():
        assert not served(lambda: torch.nn.functional.linear(torch.ones(3, 8), Int8Weight.from_float(torch.ones(4, 8))))


def test_a_rule_for_a_view_is_heeded() -> None:
    class Turned(Int8Weight):
        pass

    weight = Turned(torch.arange(6, dtype=torch.int8).view(2, 3), torch.rand(2, 1))
    assert served(lambda: weight.t())
    Turned.implements(aten.t.default)(lambda x: Turned(x.codes.t(), x.scale.t() * 2))
    assert not served(lambda: weight.t())
    assert torch.equal(weight.t().scale, weight.scale.t() * 2)


@pytest.mark.parametrize("compile", [aot_compile, lambda f: torch.compile(f, backend="subclass_aot")])
def test_what_a_trace_met_first_is_served(compile: Any, fresh_dynamo: None) -> None:
    """While a function is traced, wrappers have a `__getattr__`."""

    class First(WrapperTensor, fallback="each"):
        left: torch.Tensor
        right: torch.Tensor

    compile(lambda x: x.add_(x).neg())(First(dense(), dense()))
    hits = served(lambda: (x := First(dense(), dense()), x.add_(x).neg())[1])
    assert set(hits) == {"aten::add_.Tensor", "aten::neg"}


def test_what_is_forgotten_is_found_again() -> None:
    x = Renamed(dense(), dense())
    assert served(lambda: x.neg())
    kernels.forget(Renamed)
    before = kernels.hits()
    x.neg()
    assert kernels.hits() == before
    forget_handlers(Renamed)
    assert served(lambda: x.neg())
