"""What an operator promises of its results, from tensors without data."""

from __future__ import annotations

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.errors import RuleResultError
from subclass_aot.kit.wrapper.serve.expected_results import ExpectedResults
from tests.kit.wrapper.classes import fresh

aten = torch.ops.aten


def test_sizes_and_dtypes() -> None:
    mm = ExpectedResults(aten.mm.default)
    x, y = torch.ones(2, 3), torch.ones(3, 4)
    assert mm.mismatch(torch.ones(2, 4), (x, y), {}) == ""
    assert mm.mismatch(torch.ones(4, 2), (x, y), {}) == "a tensor of size [2, 4] and torch.float32"
    assert mm.mismatch(torch.ones(2, 4).half(), (x, y), {}) == "a tensor of size [2, 4] and torch.float32"
    assert mm.mismatch(torch.ones(5, 4), (torch.ones(5, 3), y), {}) == ""


def test_several_results_and_absent_ones() -> None:
    split, x = ExpectedResults(aten.split.Tensor), torch.ones(5)
    assert split.mismatch([x[:2], x[2:4], x[4:]], (x, 2), {}) == ""
    assert split.mismatch([x[:2], x[2:4]], (x, 2), {}) == "3 tensors"
    assert split.mismatch([x[:2], x[2:4], x[3:]], (x, 2), {}) == "a tensor of size [1] and torch.float32"
    norm, rows = ExpectedResults(aten.native_layer_norm_backward.default), torch.ones(2, 3)
    found = (rows, None, None)
    assert norm.mismatch(found, (rows, rows, [3], rows[:, :1], rows[:, :1], None, None, [True, False, False]), {}) == ""


def test_it_is_asked_once_for_each_combination() -> None:
    expected, x = ExpectedResults(aten.sum.dim_IntList), torch.ones(2, 3)
    for _ in range(2):
        assert expected.mismatch(torch.ones(2), (x, [1]), {}) == ""
        assert expected.mismatch(torch.ones(2), (x, [1]), {"dtype": torch.float64}) != ""
    assert len(expected._known) == 2


def test_what_it_does_not_know() -> None:
    x = torch.ones(2, 3)
    assert ExpectedResults(aten.mm.default).mismatch(None, (x, x), {}) == ""  # the operator refuses such sizes
    assert ExpectedResults(aten.nonzero.default).mismatch(x, (x,), {}) == ""  # they depend on the data
    assert ExpectedResults(aten.fill.Tensor).mismatch(x, (x, object()), {}) == ""


def test_symbolic_sizes_are_those_of_the_example_and_nothing_is_assumed_of_them() -> None:
    cls = fresh()
    cls.implements(aten.t.default)(lambda x: cls(x.payload.t()))
    cls.implements(aten.mul.Tensor)(lambda x, y: cls(x.payload * 2))
    cls.implements(aten.mm.default)(lambda x, y: torch.ones(1))
    compiled = aot_compile(lambda x: (x * 2).t(), dynamic=True)
    for rows in (4, 5, 6):
        assert compiled(cls(torch.zeros(rows, 3))).shape == (3, rows)
    assert not compiled.recompiles
    with pytest.raises(RuleResultError, match=r"a tensor of size \[4, 4\]"):
        aot_compile(torch.mm, dynamic=True)(cls(torch.zeros(4, 3)), torch.ones(3, 4))


def test_of_sizes_that_depend_on_data_nothing_is_asked() -> None:
    cls = fresh()
    cls.implements(aten.mul.Tensor)(lambda x, y: cls(x.payload * 2))
    compiled = aot_compile(lambda x, i: cls(x[i > 0]) * 2, dynamic=True)
    assert compiled(torch.ones(4), torch.tensor([1, 0, 1, 0])).shape == (2,)
