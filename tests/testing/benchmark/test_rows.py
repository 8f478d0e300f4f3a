"""What is measured is what the names say. How fast anything is, is not tested here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot.tensors import TwoTensor
from subclass_aot.testing.benchmark import Budget
from subclass_aot.testing.benchmark.rows import OPERATORS, dense_like, measured, null_compiler, operators
from subclass_aot.testing.inspection.offers import _Seen
from tests.testing.benchmark import makers

TINY = Budget(seconds=0.0, block_us=1.0, fewest_rounds=2, most_rounds=2)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_the_one_it_is_called(name: str) -> None:
    operator, call = OPERATORS[name]
    pair, gradient = (TwoTensor(torch.ones(3, 3), torch.ones(3, 3)) for _ in range(2))
    with torch.no_grad(), _Seen(TwoTensor) as seen:
        call(pair, gradient)
    assert operator in seen.operators


def test_what_writes_leaves_values_that_can_be_written_again() -> None:
    for name in ("add_", "mul_", "lerp_", "addcmul_", "addcdiv_"):
        w = torch.full((2, 2), 3.0)
        OPERATORS[name][1](w, torch.ones(2, 2))
        assert torch.equal(w, torch.full((2, 2), 3.0))


def test_an_operator_that_is_refused_is_a_row_with_the_first_line() -> None:
    found = {row.name: row for row in operators(makers.slow, TINY)}
    assert found["mul_"].refused == "NotImplementedError: Slow has no aten.mul_.Tensor"
    assert found["mul_"].us is None and found["mul_"].ratio is None
    assert found["detach"].us and found["detach"].dense_us and not found["detach"].refused


def test_what_dense_tensors_cannot_do_has_no_counterpart() -> None:
    def refuse() -> None:
        raise RuntimeError

    row = measured("operator", "name", 1, (len, ("abc",)), (refuse, ()), TINY)
    assert row.us and row.dense_us is None and row.ratio is None


def test_a_dense_tensor_looks_alike() -> None:
    pair: Any = TwoTensor(torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 3, dtype=torch.float64))
    dense = dense_like(pair)
    assert type(dense) is torch.Tensor and (dense.shape, dense.dtype) == (pair.shape, pair.dtype)


def test_a_null_graph_computes_once() -> None:
    graph = fx.symbolic_trace(lambda x: [x + 1])
    run = null_compiler(graph, [])
    first = run(torch.ones(2))
    assert torch.equal(first[0], torch.full((2,), 2.0)) and run(torch.zeros(2)) is first  # type: ignore[arg-type]
