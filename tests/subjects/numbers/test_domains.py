"""Divisions and powers of symbols: where they have no value, and where torch computes another one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile


def caught(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (ZeroDivisionError, TypeError) as error:
        return str(error)


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "division by zero": lambda x, n, r: (caught(lambda: 1 / (n - 5)), caught(lambda: 1 / (r - 3.5))),
    "whole division by zero": lambda x, n, r: (caught(lambda: 7 // (n - 5)), caught(lambda: divmod(n, n - 5))),
    "rest of a division by zero": lambda x, n, r: (caught(lambda: n % (n - 5)), caught(lambda: r % (r - 3.5))),
    "powers of zero": lambda x, n, r: (caught(lambda: (n - 5) ** -1), caught(lambda: (r - 3.5) ** -1), 0.0**r, 0**n),
    "complex powers": lambda x, n, r: ((r - 4) ** 0.5, (n - 6) ** 0.5, (-2.0) ** r),
    "powers": lambda x, n, r: (n**2, n**-1, 2**n, 2.0**r, r**n, n**r, r**2, r**0.5, (-2) ** n, pow(n, 3, 5)),
    "powers of negative numbers": lambda x, n, r: ((r - 40.0) ** 2, (r - 40.0) ** 3, (n - 40) ** 2, (n - 40) ** 2.0),
    "floors": lambda x, n, r: (
        r // 0.1,
        r % 0.1,
        -r // 0.3,
        7.5 // r,
        (r - 3.5) // 1.0,
        caught(lambda: divmod(r, 0.1)),
    ),
    "floors of sizes": lambda x, n, r: (n / 2 // 1, n / 2 % 1, n * 0.1 // 0.1, n * 0.1 % 0.1, -n // 3, -n % 3),
    "a branch on a power": lambda x, n, r: r**2 if r > 4 else 0.0,
}

CALLS = [(4, 2.5), (5, 3.5), (6, 4.5), (10, 1.0), (5, 3.5), (30, float("inf"))]


@pytest.mark.every_case
@pytest.mark.parametrize("program", PROGRAMS)
def test_of_numbers(program: str) -> None:
    def function(x: torch.Tensor, n: int, r: float) -> Any:
        return x * 2, PROGRAMS[program](x, n, r)

    compiled = aot_compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, r in CALLS:
            assert repr(compiled(torch.ones(2), n, r)) == repr(function(torch.ones(2), n, r)), (n, r)


@pytest.mark.parametrize("program", PROGRAMS)
def test_of_sizes_and_values(program: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return PROGRAMS[program](x, x.shape[0], y.item())

    compiled = aot_compile(function)
    for n, r in CALLS:
        arguments = torch.ones(n), torch.tensor(r)
        assert repr(compiled(*arguments)) == repr(function(*arguments)), (n, r)


def test_what_is_assumed_is_one_compilation() -> None:
    compiled = aot_compile(lambda x, n, r: x / n + 1 / n + 1 / r + n // (n + 1) + r**2)
    for n in (2, 3, 4, 5):
        assert compiled(torch.ones(1), n, n + 0.5) == 2 / n + 1 / (n + 0.5) + (n + 0.5) ** 2
    assert len(compiled.recompiles) == 1
