"""Readings, distances, and the law: a program commutes with every reading."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.testing.contract.trial import (
    BrokenClause,
    DoesNotApply,
    Trial,
    first_line,
    inner_of,
    size_of,
    storages,
    unflattened,
)
from tests.testing.contract.classes import Held, Scaled, held, int8_weight, scaled, two_tensor


def test_what_a_tensor_means() -> None:
    weight = int8_weight()
    trial = Trial(lambda: unflattened(weight, inner_of(weight)))
    (dense,) = trial.read(weight)
    assert torch.equal(dense, weight.to_plain()) and dense.stride() == weight.stride()
    assert len(Trial(two_tensor).readings) == 2
    pair = two_tensor()
    assert all(map(torch.equal, Trial(two_tensor).read(pair), [pair.a, pair.b]))
    assert Trial(two_tensor, [lambda x: x.a - x.b]).read(pair)[0].equal(pair.a - pair.b)


def test_a_class_whose_inner_tensors_have_other_sizes_means_nothing() -> None:
    class Factors(Held):
        @property
        def column(self) -> torch.Tensor:
            return self.held[:, :1]

        def __tensor_flatten__(self) -> tuple[list[str], Any]:
            return ["held", "column"], self.note

    trial = Trial(held(Factors))
    assert trial.readings == ()
    with pytest.raises(DoesNotApply, match="give readings="):
        trial.agrees(trial.make(), [], "it")
    with pytest.raises(DoesNotApply, match="give readings="):
        trial.commutes("x * 2", lambda x: x * 2)


def test_reading_has_the_strides_outside() -> None:
    weight = int8_weight().t()
    (dense,) = Trial(int8_weight).read(weight)
    assert dense.stride() == (1, 6) and torch.equal(dense, weight.to_plain())


def test_a_method_that_wants_arguments_is_no_reading() -> None:
    class Codec(Held):
        @staticmethod
        def dequantize(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return codes * scale

        def get_original_weight(self) -> torch.Tensor:
            return self.held * 2

    trial = Trial(held(Codec))
    assert torch.equal(trial.values()[0], trial.make().held * 2)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (lambda x: x * 3 if isinstance(x, TwoTensor) else x * 2, "it has wrong values, off by 0.5 of the largest"),
        (lambda x: x[:1] if isinstance(x, TwoTensor) else x, r"it: shape \[1, 6\] outside, not \[4, 6\]"),
        (lambda x: x.double() if isinstance(x, TwoTensor) else x, "it: dtype torch.float64 outside, not torch.float32"),
        (lambda x: (x, x.a if isinstance(x, TwoTensor) else x), "result 1 of it has wrong values"),
        (lambda x: x * float("nan") if isinstance(x, TwoTensor) else x, "off by inf"),
    ],
)
def test_a_program_that_does_not_commute(program: Any, says: str) -> None:
    with pytest.raises(BrokenClause, match=says):
        Trial(two_tensor).commutes("it", program)


def test_programs_that_commute() -> None:
    trial = Trial(two_tensor)
    trial.commutes("it", lambda x: x * 2)
    trial.commutes("it", lambda x: (x * float("nan"), x / 0))
    trial.commutes("it", lambda x: x[:0])
    with pytest.raises(DoesNotApply, match="dense tensors refuse it"):
        trial.commutes("it", lambda x: x.view(5))


def test_rounding_is_that_of_a_write() -> None:
    assert Trial(two_tensor).rounding == 0 and Trial(scaled(Scaled)).rounding < 1e-6
    assert 1e-3 < Trial(int8_weight).rounding < 1 / 127


def test_what_make_must_give() -> None:
    with pytest.raises(TypeError, match=r"make\(\) gives a Tensor, which is no traceable wrapper subclass"):
        Trial(lambda: torch.ones(2))
    count = itertools.count()
    with pytest.raises(ValueError, match="other values each time"):
        Trial(lambda: TwoTensor(torch.full((2,), next(count)), torch.ones(2)))


def test_where_memory_is() -> None:
    pair = two_tensor()
    assert storages(pair) == {pair.a.untyped_storage().data_ptr(), pair.b.untyped_storage().data_ptr()}
    assert storages(pair[1:]) == storages(pair) and not storages(pair) & storages(pair.clone())
    assert storages(torch.ones(0)) == set()


def test_the_size_of_a_jagged_tensor_is_that_of_another() -> None:
    def make() -> torch.Tensor:
        return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)

    assert make().shape != make().shape
    assert size_of(make()) == size_of(make()) == [2, "ragged", 3]
    assert size_of(two_tensor()) == [4, 6]


def test_errors_in_one_line() -> None:
    assert first_line(KeyError("a\nb")) == "KeyError: 'a\\nb'"
    assert first_line(ValueError("\x1b[1ma\x1b[0m")) == "ValueError: a"
    assert first_line(ValueError("a\nb")) == "ValueError: a" and first_line(ValueError()) == "ValueError: "


def test_a_slip_in_the_code_of_the_class_is_broken_and_a_refusal_is_not() -> None:
    class Picky(Held):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.sin.default:
                return args[0].missing
            if func is torch.ops.aten.cos.default:
                raise NotImplementedError("no cosine")
            return super().__torch_dispatch__(func, types, args, kwargs)

    trial = Trial(held(Picky))
    trial.commutes_or_refuses("cos", torch.cos)
    with pytest.raises(BrokenClause, match="sin: `__torch_dispatch__` .*raises AttributeError"):
        trial.commutes_or_refuses("sin", torch.sin)
    assert trial.made_by(torch.sin) is None and type(trial.made_by(torch.clone)) is Picky
