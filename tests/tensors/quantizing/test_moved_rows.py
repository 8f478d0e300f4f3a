"""Rows of quantized tensors that are written or moved are those of dense ones, and no others are rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from tests.tensors.checks import same
from tests.tensors.quantizing.test_rows import CLASSES, Largest

Program = Callable[[Any, Any], Any]


def at(*places: int) -> torch.Tensor:
    return torch.tensor(places)


def assign(target: Any, key: Any, values: Any) -> Any:
    target[key] = values
    return target


ALL = slice(None)
WRITES: dict[str, tuple[Program, tuple[int, ...]]] = {  # with the rows that are written, of [2, 3, 6, 8]
    "copied": (lambda w, x: w.index_copy_(2, at(4, 1), x[:, :, :2]), (1, 4)),
    "copied by the last dims": (lambda w, x: w.index_copy_(-2, at(4, 1), x[:, :, :2]), (1, 4)),
    "put": (lambda w, x: assign(w, (ALL, ALL, at(-1, 2)), x[:, :, :2]), (2, 5)),
    "put alike": (lambda w, x: assign(w, (ALL, ALL, at(3, 2)), x[:1, :1, :1]), (2, 3)),
    "put for each of a batch": (lambda w, x: assign(w, (at(0, 1), ALL, at(3, 3)), x[:, :, 0]), (3,)),
    "put with places of two dims": (lambda w, x: assign(w, (ALL, ALL, at(3, 2)[None]), x[:, :, None, :2]), (2, 3)),
    "sliced": (lambda w, x: assign(w, (ALL, ALL, slice(2, 4)), x[:, :, :2]), (2, 3)),
    "a number": (lambda w, x: assign(w, (ALL, ALL, at(1)), 0.25), (1,)),
    "zeros": (lambda w, x: w.zero_(), (0, 1, 2, 3, 4, 5)),
}
MOVES: dict[str, Program] = {
    "selected": lambda w, x: w.index_select(0, at(1, 1, 0)),
    "selected positions": lambda w, x: w.index_select(-2, at(5, 0)),
    "rolled": lambda w, x: w.roll(-1, dims=-2),
    "rolled along two": lambda w, x: w.roll((1, 2), dims=(0, 2)),
    "put together": lambda w, x: torch.cat((w[:, :, 1:], w[:, :, :3]), dim=-2),
}
DENSE: dict[str, Program] = {
    "columns": lambda w, x: w.index_select(3, at(1, 0)),
    "rolled columns": lambda w, x: w.roll(1, dims=-1),
    "rolled as one": lambda w, x: w.roll(1),
    "with dense ones": lambda w, x: torch.cat((w, x), dim=2),
}
FOLLOWING = sorted(CLASSES.keys() - {"of one scale"})


def made(name: str) -> tuple[Any, torch.Tensor]:
    """A tensor of a class, and new values."""
    torch.manual_seed(0)
    return CLASSES[name](torch.randn(2, 3, 6, 8)), torch.randn(2, 3, 6, 8)


def plain(value: Any) -> torch.Tensor:
    return value.to_plain() if hasattr(value, "to_plain") else value


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("run", [lambda program: program, sa.aot_compile], ids=["eager", "aot_compile"])
def test_what_is_written_is_rounded_and_the_rest_stays(run: Any, name: str, write: str) -> None:
    program, rows = WRITES[write]
    tensor, values = made(name)
    before, whole = tensor.clone(), tensor.to_plain()
    assert run(program)(tensor, values) is tensor
    kept = [row for row in range(6) if row not in rows]
    same(tensor[:, :, kept].contiguous(), before[:, :, kept].contiguous())
    rounded = tensor.new_empty(2, 3, 6, 8).copy_(program(whole, values))
    assert torch.equal(tensor.to_plain()[:, :, rows], rounded.to_plain()[:, :, rows])
    assert not torch.equal(tensor.to_plain()[:, :, rows], before.to_plain()[:, :, rows])


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("run", [lambda program: program, sa.aot_compile], ids=["eager", "aot_compile"])
def test_what_is_moved_has_the_same_bits(run: Any, name: str, move: str) -> None:
    tensor, values = made(name)
    found = run(MOVES[move])(tensor, values)
    assert type(found) is type(tensor)
    assert torch.equal(found.to_plain(), MOVES[move](tensor.to_plain(), values))


@pytest.mark.parametrize("program", DENSE)
@pytest.mark.parametrize("name", CLASSES)
def test_others_give_dense_tensors(name: str, program: str) -> None:
    tensor, values = made(name)
    found = DENSE[program](tensor, values)
    assert type(found) is torch.Tensor and torch.equal(found, DENSE[program](tensor.to_plain(), values))


@pytest.mark.parametrize("write", WRITES)
def test_of_one_scale_the_whole_is_rounded(write: str) -> None:
    tensor, values = made("of one scale")
    expected = tensor.from_plain(WRITES[write][0](tensor.to_plain(), values)).to_plain()
    assert torch.equal(WRITES[write][0](tensor, values).to_plain(), expected)


@pytest.mark.parametrize("write", sorted(WRITES.keys() - {"sliced"}))
@pytest.mark.parametrize("name", FOLLOWING)
def test_no_more_is_made_dense_than_is_written(name: str, write: str) -> None:
    tensor = CLASSES[name](torch.randn(2, 3, 600, 8))
    values = torch.randn(2, 3, 6, 8)
    with Largest() as largest:
        WRITES[write][0](tensor, values)
    assert largest.elements <= 2 * 3 * 600  # scales at the most


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_of_other_dtypes_and_their_own_class(dtype: torch.dtype) -> None:
    values = torch.randn(2, 3, 6, 8).to(dtype)
    one, other = (sa.Int8Weight.from_float(torch.zeros(2, 3, 9, 8, dtype=dtype)) for _ in range(2))
    one.index_copy_(2, torch.arange(6), values)
    other.index_copy_(2, torch.arange(6), sa.Int8Weight.from_float(values))
    same(one, other)
    assert torch.equal(one[:, :, :6].to_plain(), sa.Int8Weight.from_float(values).to_plain())


@pytest.mark.parametrize(
    "program",
    [
        lambda w, x: w.index_copy_(2, at(4, 1), x[:, :, :1]),
        lambda w, x: w.index_copy_(2, at(4, 1), x[:, :, :2].double()),
        lambda w, x: w.index_copy_(2, at(4, 6), x[:, :, :2]),
        lambda w, x: w.index_copy_(4, at(4, 1), x[:, :, :2]),
        lambda w, x: w.index_copy_(2, at(4, 1), w[:, :, :1]),
        lambda w, x: assign(w, (ALL, ALL, at(1, 6)), x[:, :, :2]),
        lambda w, x: assign(w, (ALL, ALL, at(1, 2)), x[:, :, :3]),
        lambda w, x: w.index_select(2, at(6)),
        lambda w, x: w.index_select(4, at(0)),
        lambda w, x: w.roll((1, 2), dims=(2,)),
        lambda w, x: torch.cat((w, w[:, :2]), dim=2),
    ],
)
def test_what_dense_tensors_refuse_is_refused_and_nothing_written(program: Program) -> None:
    tensor, values = made("Int8Weight")
    before = tensor.clone()
    with pytest.raises((RuntimeError, IndexError)):
        program(tensor.to_plain(), values)
    with pytest.raises((RuntimeError, IndexError)):
        program(tensor, values)
    same(tensor, before)


def test_a_part_that_shares_scales_is_written_through_the_whole() -> None:
    tensor, values = made("Int8Weight")
    dense = tensor.to_plain()
    for each in (tensor, dense):
        each[..., :4].index_copy_(2, at(1, 2), values[:, :, :2, :4])
    assert (tensor.to_plain() - dense).abs().max() <= dense.abs().max() / 127
    same(tensor[:, :, 3:].contiguous(), made("Int8Weight")[0][:, :, 3:].contiguous())


PARTS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda w: w[:, :32],
    "columns within a block": lambda w: w[:, 8:16],
    "rows": lambda w: w[2:4],
    "the transpose": lambda w: w.t(),
    "rows of the transpose": lambda w: w.t()[:32],
}
OF_PARTS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda part: part.zero_(),
    "copied": lambda part: part.index_copy_(0, at(1), torch.full((1, part.shape[1]), 0.5)),
    "put": lambda part: assign(part, (at(1),), torch.full((1, part.shape[1]), 0.5)),
}
MATRICES: dict[str, Callable[[torch.Tensor], Any]] = {
    "Int8Weight": sa.Int8Weight.from_float,
    "Float8Weight": sa.tensors.Float8Weight.from_float,
    "Int4Weight": lambda x: sa.tensors.Int4Weight.from_float(x, group=32),
    "NF4Weight": lambda x: sa.tensors.NF4Weight.from_float(x, block=32),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("write", OF_PARTS)
@pytest.mark.parametrize("compiled", [False, True])
def test_the_rest_of_what_a_part_is_of_stays(name: str, part: str, write: str, compiled: bool) -> None:
    """Scales, or what these are made of, may be those of elements that the part has not."""
    torch.manual_seed(0)
    weight = MATRICES[name](torch.randn(8, 64))
    expected = weight.to_plain().clone()

    def program(whole: Any) -> None:
        OF_PARTS[write](PARTS[part](whole))

    with torch.no_grad():
        (sa.aot_compile(program) if compiled else program)(weight)
        program(expected)
    assert (weight.to_plain() - expected).norm() <= 0.05 * expected.norm()
