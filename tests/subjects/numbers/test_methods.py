"""Numbers that are symbols, where only numbers go: arrays, texts of json, comparisons, roundings, divisions by zero."""

from __future__ import annotations

import decimal
import enum
import fractions
import json
import json.encoder
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from subclass_aot import aot_compile, trace_joint


class Color(enum.IntEnum):
    RED = 4
    BLUE = 5


class Whole(int):
    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return 1


class Encoder(json.JSONEncoder):
    def default(self, value: object) -> str:
        return type(value).__name__


def in_place(n: int) -> Any:
    array = np.arange(3)
    array += n
    array[0] = n
    return array


NAMES = {**globals(), "decimal": decimal, "fractions": fractions, "math": math, "random": random}

EXPRESSIONS = [
    "json.dumps([n, r], default=str)",
    "json.dumps({'a': n, 'b': [r]}, cls=Encoder)",
    "json.dumps({n: 1, r: 2}, skipkeys=True)",
    "np.array([n, r])",
    "np.asarray(n).dtype",
    "(np.arange(3) * n, n * np.arange(3), np.arange(2) / n, np.array([4, 5]) == n)",
    "(np.float32(2) * r, r * np.float32(2), np.float32(1) + n, np.int64(4) == n, n < np.int64(5))",
    "(np.maximum(n, 2), np.power(n, 2), np.add.reduce([n, n]), np.add(n, r, out=np.zeros(())))",
    "(np.full(2, r), np.clip(np.arange(6), 1, n), np.where([True, False], n, r), np.linspace(0, r, 3))",
    "in_place(n)",
    "(Color.BLUE == n, Color.RED != n, n == Color.BLUE, n in [Color.RED], {Color.BLUE: 1}.get(n))",
    "(Whole(4) == n, n == Whole(5), n != Whole(4))",
    "(fractions.Fraction(5) == n, n == fractions.Fraction(9, 2), fractions.Fraction(7, 2) == r)",
    "(decimal.Decimal(5) == n, n != decimal.Decimal(5), decimal.Decimal('3.5') == r)",
    "(n == None, n != 'a', n == [4], n == slice(4), n == object, r == (), n != {})",
    "(round(n, -1), round(n, 0), round(n), round(r, -1), round(n + 3, -1))",
    "(random.Random(n).random(), random.Random(-n).random(), random.Random(r).random())",
    "(r and 2.0, r or 3.0, not r, 1 if r - 3.5 else 2, bool(n - 5))",
    "(math.isnan(r * 0.0), math.isinf(r), math.copysign(1, r - 3.5), 1 if r else 0)",
]
"""Of a whole number and another one."""


def told(value: Any) -> Any:
    """Returns classes and values."""
    if isinstance(value, tuple):
        return tuple(map(told, value))
    return type(value).__name__, str(value)


def of_numbers(n: int, r: float) -> tuple[Any, ...]:
    return torch.ones(3), n, r


def of_sizes(n: int, r: float) -> tuple[Any, ...]:
    return (torch.ones(n, int(r)),)


def of_values(n: int, r: float) -> tuple[Any, ...]:
    return torch.ones(3), torch.tensor([float(n), r])


SOURCES = {
    of_numbers: "def program(x, n, r):\n",
    of_sizes: "def program(x):\n    n, r = x.shape[0], x.shape[1] + 0.5\n",
    of_values: "def program(x, y):\n    n, r = y[0].long().item(), y[1].item()\n",
}


def check(expression: str, source: Callable[[int, float], tuple[Any, ...]]) -> None:
    names: dict[str, Any] = dict(NAMES)
    exec(f"{SOURCES[source]}    return x * 2, {expression}\n", names)
    program = names["program"]
    compiled = aot_compile(program)
    for n, r in ((4, 2.5), (5, 3.5), (6, 4.5), (7, 5.5), (5, 3.5)):
        arguments = source(n, r)
        assert told(compiled(*arguments)) == told(program(*arguments)), n


@pytest.mark.every_case
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_it_is_as_with_numbers(expression: str) -> None:
    check(expression, of_numbers)


@pytest.mark.parametrize("source", [of_sizes, of_values])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_so_are_sizes_and_values(expression: str, source: Callable[[int, float], tuple[Any, ...]]) -> None:
    check(expression, source)


NAN, INF = float("nan"), float("inf")

OF_FLOATS: dict[str, Callable[[float], Any]] = {
    "comparisons": lambda r: (r == r, r != r, r <= r, r >= r, r < r, r > r, not r < 3, r == 2 * r),
    "differences": lambda r: (r - r, r * 0.0, r * 0, r + -r, (r + 1e16) - 1e16, r + 0.1 + 0.2, r - 0.3 - 0.4),
    "products": lambda r: (r * r * r, r * 0.1 * 3, r * 3.0 / 3.0, (r + 1e308) * 10, r / 3 * 3, -r * 0.1 * -3),
    "branches": lambda r: (1 if r else 2, r or 5.0, r and 7.0, max(r, 1.0), min(1.0, r), 1 if 0 < r < 2 else 2),
    "signs": lambda r: (math.copysign(1, r) if r == r else 0, math.atan2(0.0, r), abs(r), -r, r * -1.0, 0.0 - r),
    "zeros with a sign": lambda r: (r * -0.0, -0.0 * r, r - 0.0, r + -0.0, 0.0 - r, -0.0 - r, -0.0 + r, -(r * 0.0)),
    "divided zeros": lambda r: (-0.0 / r, r * -0.0 / 3.0, 0.0 / -r) if r else 0,
    "divided zeros of what is read": lambda r: (math.copysign(1.0, r), 0.0 / -r, 0.0 / r, -0.0 / r) if r else 0,
    "kinds": lambda r: (math.isnan(r), math.isinf(r), math.isfinite(r), r == INF, float(r), str(r)),
    "wholes": lambda r: (math.floor(r), round(r, 1), round(r, -1), int(r)) if abs(r) < 1e6 else 0,
}

SEQUENCES = [
    (1.0, 2.0, NAN, 3.0, INF, -INF, 0.0, -0.0, 1.5, NAN, 0.1),
    (NAN, INF, 1.0, 2.5, NAN, -0.0),
    (0.0, -0.0, 0.0, 0.3, 0.7),
    (INF, -INF, NAN, 1.0),
    (1e308, -1e308, 5e-324, 0.1, 0.7),
]


@pytest.mark.every_case
@pytest.mark.parametrize("program", OF_FLOATS)
def test_floats_are_no_real_numbers(program: str) -> None:
    def function(x: torch.Tensor, r: float) -> Any:
        return x * 2, OF_FLOATS[program](r)

    for sequence in SEQUENCES:
        compiled = aot_compile(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for r in sequence:
                assert repr(compiled(torch.ones(1), r)) == repr(function(torch.ones(1), r)), r


OF_SIZES: dict[str, Callable[[int], Any]] = {
    "next whole number": lambda n: math.ceil(n * 0.1 * 3),
    "in order": lambda n: (n * 0.1 * 3, n / 10 + 0.1 + 0.2, 0.1 + n * 0.7 - 0.3, -(n * 0.3) * 3, 0.1 + n / 3 + 0.2),
    "zeros": lambda n: (n * 0.0, 0 * (n * 0.5), -n * 0.0, n * 0.5 - n * 0.5),
    "cubes": lambda n: ((n * 0.1) * (n * 0.1) * (n * 0.1), (n * 0.1) ** 3),
    "branch": lambda n: n * 0.1 + 0.2 > 1.2,
    "sums": lambda n: n * 0.1 + 0.2 + 0.3,
}


@pytest.mark.parametrize("program", OF_SIZES)
def test_nor_are_those_that_are_made_of_sizes(program: str) -> None:
    compiled = aot_compile(lambda x: (x * 2, OF_SIZES[program](x.shape[0])))
    for n in (7, 10, 11, 13, 20, 30, 3, 49, 8):
        assert repr(compiled(torch.ones(n))[1]) == repr(OF_SIZES[program](n)), n
    assert len(compiled.recompiles) <= 2


def test_a_float_that_is_made_of_a_size_and_a_number_is_read() -> None:
    def function(x: torch.Tensor, r: float) -> Any:
        product = r * x.shape[0]
        return float(product), f"{product}", math.copysign(1, product), int(r + x.shape[0]) if r == r else 0

    compiled = aot_compile(function)
    for n, r in ((2, 1.0), (3, 2.0), (5, -0.5), (7, 0.5), (4, 0.0), (5, -0.0), (6, NAN), (7, 0.25)):
        assert repr(compiled(torch.ones(n), r)) == repr(function(torch.ones(n), r)), (n, r)


def test_numbers_below_zero_are_symbols_too() -> None:
    def function(x: torch.Tensor, n: int) -> Any:
        return x.roll(n) * n + x[:n].sum() + n // 2 + n % 3 + abs(n) + max(n, -100), n, -n

    compiled = aot_compile(function)
    for n in (-2, -3, -4, -5, -6):
        assert repr(compiled(torch.arange(9.0), n)) == repr(function(torch.arange(9.0), n))
    assert len(compiled.recompiles) == 1
    for n in (2, -7, 3, -8, 4, 0, -1, 1):
        assert repr(compiled(torch.arange(9.0), n)) == repr(function(torch.arange(9.0), n))


def test_a_joint_graph_reads_no_value() -> None:
    joint = trace_joint(lambda x: x.sum() / x.nonzero().shape[0], torch.ones(3), dynamic=True)
    assert len(joint.outputs) == 1


def test_methods_are_as_they_were_afterwards() -> None:
    before = {cls: dict(vars(cls)) for cls in (torch.SymInt, torch.SymFloat)}
    encoder = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    compiled = aot_compile(lambda x, n: x * n)
    for n in (2, 3):
        compiled(torch.ones(1), n)
    assert all(dict(vars(cls)) == attributes for cls, attributes in before.items())
    assert json.encoder.c_make_encoder is encoder  # type: ignore[attr-defined]
