"""Writes into wrappers and into views of them, against the same writes into the dense tensor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, Outer, TwoTensor, WrapperTensor, aot_compile, structure
from subclass_aot.errors import MutationError, OperatorRuleError


def _of_the_docs(name: str) -> Any:
    """A class that the documentation builds, as it stands there."""
    page = (Path(__file__).parents[4] / "docs" / "authors.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (block,) = (each for each in blocks if f"class {name}(" in each and "@RowInt8.implements" in each)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(block, namespace)
    return namespace[name]


RowInt8 = _of_the_docs("RowInt8")


def weight(cls: Any = Int8Weight) -> Any:
    torch.manual_seed(0)
    return cls(torch.randint(-127, 128, (4, 6), dtype=torch.int8), torch.rand(4, 1) / 100)


PLACES: dict[str, Any] = {
    "whole": lambda w: w,
    "rows": lambda w: w[1:3],
    "a row": lambda w: w[2],
    "columns": lambda w: w[:, :2],
    "narrow": lambda w: w.narrow(1, 2, 3),
    "a column": lambda w: w[:, 4],
    "an element": lambda w: w[1, 3],
    "no column": lambda w: w[:, 2:2],
    "a column of one row": lambda w: w.t()[2, 1:2],
    "columns of rows": lambda w: w[1:, ::2],
    "transposed": lambda w: w.t(),
    "columns of the transposed": lambda w: w.t()[:, 1],
    "rows of the transposed": lambda w: w.t()[3:],
    "split": lambda w: w.split(2, 1)[1],
    "viewed": lambda w: w.view(4, 2, 3)[:, 1],
}

WRITES: dict[str, Any] = {
    "zero_": lambda v: v.zero_(),
    "mul_": lambda v: v.mul_(10),
    "fill_": lambda v: v.fill_(0.7),
    "copy_": lambda v: v.copy_(torch.linspace(-1, 1, v.numel()).view(v.shape)),
    "add_": lambda v: v.add_(v * 0.5),
}


def check(w: Any, expected: torch.Tensor) -> None:
    """Each element is within half a step of what it should be: of a step of its own row."""
    step = expected.abs().amax(1, keepdim=True) / 127
    assert ((w.to_plain() - expected).abs() <= step * 0.51 + 1e-6).all()


@pytest.mark.parametrize("mode", ["no_grad", "inference", "compiled", "compiled on the view"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("cls", [Int8Weight, RowInt8])
def test_a_write_into_a_part_leaves_the_rest(cls: Any, place: Any, write: Any, mode: str) -> None:
    w = weight(cls)
    expected = w.to_plain()
    write(place(expected))

    def program(w: Any) -> Any:
        return write(place(w)) * 1

    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        view = place(w)
        if mode == "compiled":
            aot_compile(program)(w)
        elif mode == "compiled on the view":
            aot_compile(lambda v: write(v) * 1)(view)
        else:
            program(w)
    check(w, expected)
    torch.testing.assert_close(view.to_plain(), place(w.to_plain()))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_a_part_of_the_class_goes_in_as_a_dense_one_does(place: Any, compiled: bool) -> None:
    """Loaders of parallel weights write so: `narrow(1, ...).copy_(loaded)`."""
    w, source = weight(), weight()
    source.mul_(30)
    expected = w.to_plain()
    place(expected).copy_(place(source.to_plain()))

    def load(w: Any, source: Any) -> None:
        place(w).copy_(place(source))

    with torch.no_grad():
        (aot_compile(load) if compiled else load)(w, source)
    check(w, expected)


def test_other_views_see_it() -> None:
    w = weight()
    columns, rows = w[:, :2], w[1:]
    columns.fill_(3.0)
    torch.testing.assert_close(rows.to_plain(), w.to_plain()[1:])
    torch.testing.assert_close(columns.to_plain(), torch.full((4, 2), 3.0))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_made_in_inference_mode(place: Any, write: Any) -> None:
    """There autograd knows no bases."""
    with torch.inference_mode():
        w = weight()
        expected = w.to_plain()
        write(place(w))
        write(place(expected))
        check(w, expected)


def test_a_view_made_in_inference_mode_is_not_written_by_a_compiled_function() -> None:
    with torch.inference_mode():
        w = weight()
        before, write = w.to_plain(), aot_compile(lambda v: v.mul_(2))
        with pytest.raises(MutationError, match=r"args\[0\] is a view of a wrapper and has fields in common"):
            write(w[:, :2])
        assert w.to_plain().equal(before)
        aot_compile(lambda w: w[:, :2].mul_(2))(w)  # as the message says
        before[:, :2] *= 2
        check(w, before)


PARTS: list[Any] = [
    lambda x: x[:, :2],
    lambda x: x[:, :2][:1],
    lambda x: x.t()[1:3],
    lambda x: x.split(2, 1)[1],
    lambda x: x[1],
    lambda x: x.view(-1)[:3],
]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("mode", ["no_grad", "inference", "compiled", "compiled, dynamic", "compiled on the view"])
def test_parts_of_what_another_wrapper_holds(part: Any, mode: str) -> None:
    """The outer one makes views of the inner ones below autograd."""
    values = torch.randn(4, 6)
    pair: Any = TwoTensor(Int8Weight.from_float(values), Int8Weight.from_float(values * 2))
    want = [pair.a.to_plain(), pair.b.to_plain()]
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        if mode == "compiled on the view":
            aot_compile(lambda x: x.zero_())(part(pair))
        else:
            program = lambda x: part(x).zero_()  # noqa: E731
            (aot_compile(program, dynamic="dynamic" in mode) if "compiled" in mode else program)(pair)
        for plain in want:
            part(plain).zero_()
    for weight, plain in zip((pair.a, pair.b), want, strict=True):
        assert (weight.to_plain() - plain).abs().max() <= plain.abs().max() / 127


def test_a_part_of_what_another_wrapper_holds_without_a_way_from_dense() -> None:
    class Fixed(WrapperTensor, views="broadcast"):
        codes: torch.Tensor
        scale: torch.Tensor

    pair: Any = TwoTensor(*(Fixed(torch.ones(2, 4), torch.ones(2, 1)) for _ in range(2)))
    source = TwoTensor(*(Fixed(torch.ones(2, 2), torch.full((2, 1), 3.0)) for _ in range(2)))
    with pytest.raises(OperatorRuleError, match="scale is shared with the rest of the tensor"):
        pair[:, :2].copy_(source)
    assert pair.a.scale.eq(1).all()


def test_without_a_way_from_dense() -> None:
    class Fixed(WrapperTensor, views="broadcast"):
        codes: torch.Tensor
        scale: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.codes * self.scale

    w = Fixed(torch.ones(2, 4), torch.ones(2, 1))
    source = Fixed(torch.ones(2, 2), torch.full((2, 1), 3.0))
    with pytest.raises(OperatorRuleError, match="scale is shared with the rest of the tensor"):
        w[:, :2].copy_(source)
    assert w.to_plain().eq(1).all()
    w[:1].copy_(Fixed(torch.ones(1, 4), torch.full((1, 1), 3.0)))
    assert w.to_plain()[0].eq(3).all() and w.to_plain()[1].eq(1).all()


@pytest.mark.parametrize("columns", [1, 3])
def test_weights_of_one_column_can_be_written(columns: int) -> None:
    layer = nn.Linear(columns, 4, bias=False)
    layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight), requires_grad=False)
    before = layer.weight.to_plain()
    layer.load_state_dict({"weight": torch.ones(4, columns)})
    assert not layer.weight.to_plain().equal(before)
    layer.load_state_dict({"weight": Int8Weight.from_float(before)})
    torch.testing.assert_close(layer.weight.to_plain(), before)
    with torch.no_grad():
        layer.weight[0, columns - 1] = 5
        assert layer.weight.to_plain()[0, columns - 1] == 5


class Codes(WrapperTensor, views="broadcast"):
    """Codes of any dtype."""

    codes: torch.Tensor
    scale: torch.Tensor
    offsets: torch.Tensor | None = structure()

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes.to(self.scale.dtype) * self.scale


class Rounding(Codes):
    def from_plain(self, plain: torch.Tensor) -> Rounding:
        scale = plain.abs().amax(1, keepdim=True) / 100
        return Rounding((plain / scale).round().to(self.codes.dtype), scale.to(self.scale.dtype), self.offsets)


def test_codes_of_another_dtype_are_not_reinterpreted() -> None:
    """200 in uint8 is -56 in int8."""
    source = Rounding(torch.full((2, 3), 200, dtype=torch.uint8), torch.ones(2, 1))
    target = Rounding(torch.zeros(2, 3, dtype=torch.int8), torch.ones(2, 1))
    target.copy_(source)
    torch.testing.assert_close(target.to_plain(), source.to_plain())
    wider = Rounding(torch.zeros(2, 3, dtype=torch.int16), torch.ones(2, 1, dtype=torch.float64))
    wider.copy_(source)
    assert wider.codes.eq(200).all()
    without = Codes(torch.zeros(2, 3, dtype=torch.int8), torch.ones(2, 1))
    with pytest.raises(OperatorRuleError, match=r"Codes has no method from_plain.*\n?.*codes torch.uint8.*torch.int8"):
        without.copy_(Codes(source.codes, source.scale))
    assert without.codes.eq(0).all()
    unsigned = Rounding(torch.zeros(2, 3, dtype=torch.uint16), torch.ones(2, 1))
    target.copy_(unsigned.from_plain(torch.full((2, 3), 3.0)))
    torch.testing.assert_close(target.to_plain(), torch.full((2, 3), 3.0))


def test_precision_and_structure_are_converted_as_ever() -> None:
    offsets = torch.tensor([0, 3])
    source = Codes(torch.ones(2, 3, dtype=torch.int8), torch.full((2, 1), 0.1), offsets)
    target = Codes(torch.zeros(2, 3, dtype=torch.int8), torch.ones(2, 1).half(), torch.zeros(2, dtype=torch.int32))
    target.copy_(source)
    assert target.scale.equal(source.scale.half()) and target.offsets.tolist() == [0, 3] and target.codes.eq(1).all()


class Each(WrapperTensor, fallback="each"):
    content: torch.Tensor
    scale: torch.Tensor  # [M, 1]


class EachMasked(WrapperTensor, fallback="each"):
    content: torch.Tensor
    mask: torch.Tensor = structure()  # [M, 1]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda w: w.mul_(3),
        lambda w: w.copy_(w * 2),
        lambda w: w.zero_(),
        lambda w: torch._foreach_mul_([w], 2.0),
        lambda w: torch.add(w, w, out=w),
    ],
)
def test_each_inner_tensor_of_a_part_is_its_own_or_the_write_is_refused(write: Any, compiled: bool) -> None:
    def program(w: Any) -> Any:
        write(w[:, :2])
        return w * 1

    w = Each(torch.ones(4, 6), torch.ones(4, 1))
    with pytest.raises(OperatorRuleError, match="scale is shared with the rest of the tensor"):
        (aot_compile(program) if compiled else program)(w)
    assert w.content.equal(torch.ones(4, 6)) and w.scale.equal(torch.ones(4, 1))
    write(w[1:2])
    write(w)


def test_structure_that_is_shared_stays_where_values_are_written() -> None:
    w = EachMasked(torch.ones(4, 6), torch.zeros(4, 1, dtype=torch.bool))
    w[:, :2].mul_(3)
    assert w.content[:, 2:].equal(torch.ones(4, 4)) and w.content[:, :2].equal(torch.full((4, 2), 3.0))
    with pytest.raises(OperatorRuleError, match="mask is shared with the rest of the tensor"):
        w[:, :2].copy_(EachMasked(torch.ones(4, 2), torch.ones(4, 1, dtype=torch.bool)))
    assert not w.mask.any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "source", [lambda: weight(), lambda: weight().t().clone().t(), lambda: weight()[:1], lambda: weight()[:, :1]]
)
def test_from_one_of_the_class_whose_fields_have_other_sizes(source: Any, compiled: bool) -> None:
    w, other = weight().clone(), source()
    other.mul_(3)
    program = lambda w, other: w.copy_(other) * 1  # noqa: E731
    with torch.no_grad():
        (aot_compile(program) if compiled else program)(w, other)
    check(w, other.to_plain().expand(4, 6))


@pytest.mark.parametrize("source", [lambda n: torch.rand(1, n), lambda n: torch.rand(0, n)])
def test_without_elements_it_is_a_write_none_the_less(source: Any) -> None:
    """Torch counts it, as it counts that of a dense tensor."""
    for function in (torch.Tensor.copy_, aot_compile(torch.Tensor.copy_)):
        empty = weight()[:0]
        before = empty._version
        function(empty, source(empty.shape[1]))
        assert empty._version == before + 1
