"""What Dynamo captured, as a function of tensors: which numbers are symbols, and what is guarded of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from subclass_aot.doors import dynamo
from tests.doors.dynamo.checks import rand


def compilations_of(program: Any, calls: Sequence[Sequence[Any]], **options: Any) -> int:
    """How many graphs are compiled for these calls, whose results are compared with eager mode."""
    graphs = []

    def counted(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return dynamo.backend(gm, inputs)

    compiled = torch.compile(program, backend=counted, **options)
    for args in calls:
        torch.testing.assert_close(compiled(*args), program(*args))
    return len(graphs)


def test_numbers_become_symbols() -> None:
    x = rand(3)
    assert compilations_of(lambda x, k: x * k, [[x, k] for k in range(2, 9)]) == 2
    assert compilations_of(lambda x, k: x.expand(k, 3) + k, [[x, k] for k in (4, 7, 5, 1, 0)], dynamic=True) == 3
    assert compilations_of(lambda x, k: x[:k] * (k + 1), [[rand(9), k] for k in (4, 7, 5)], dynamic=True) == 1


def test_what_is_assumed_of_a_size_is_guarded() -> None:
    def program(x: Tensor) -> Tensor:
        return x.view(2, -1).sum(0) if x.shape[0] % 2 == 0 else x * 2

    calls = [[rand(n)] for n in (4, 5, 8, 7, 6)]
    assert compilations_of(program, calls, dynamic=True) == 2
    assert compilations_of(lambda x, y: x * y, [[rand(4), rand(4)], [rand(5), rand(1)], [rand(6), rand(6)]]) == 3


NUMBERS = {
    "turns negative": ([3, 5, -4, -6, 7, -9], 3),
    "negative ones": ([*range(-1, -13, -1)], 2),
    "zero and one": ([0, 1, 2, 3, 4, -1, 0, 1], 4),
    "zero later": ([5, 6, -5, 0, -7, 1, 9], 4),
}
PROGRAMS = {
    "factor": lambda x, n: x * n,
    "result": lambda x, n: (x + n, n * 2),
    "arithmetic": lambda x, n: x + n // 2 + n % 3 - n**2,
    "negated": lambda x, n: x * -n,
    "gradient": lambda x, n: (x * n).sum() * n,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_number_may_have_any_sign(name: str, numbers: str) -> None:
    """It takes no compilation for each number: one for the first, then one for each sign, and one for zero and one."""
    program, (values, most) = PROGRAMS[name], NUMBERS[numbers]
    calls = [(torch.ones(2, requires_grad=True), n) for n in values]
    assert compilations_of(program, calls, fullgraph=True) <= most


def test_a_number_that_is_a_size_may_have_any_sign() -> None:
    calls = [(torch.ones(2), n) for n in (3, 5, -4, -6, 0, 7)]
    assert compilations_of(lambda x, n: x.new_ones(abs(n) + 1) * n, calls) <= 4
