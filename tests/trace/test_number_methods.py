"""Numbers that are symbols, where only numbers go: arrays, texts of json, comparisons, roundings, divisions by zero."""

from __future__ import annotations

import decimal
import enum
import fractions
import json
import json.encoder
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


def caught(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except ZeroDivisionError as error:
        return str(error)


def in_place(n: int) -> Any:
    array = np.arange(3)
    array += n
    array[0] = n
    return array


NAMES = {**globals(), "decimal": decimal, "fractions": fractions}

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
    "caught(lambda: 1 / (n - 5))",
    "caught(lambda: 7 // (n - 5))",
    "caught(lambda: n % (n - 5))",
    "caught(lambda: divmod(7, n - 5))",
    "caught(lambda: (n - 5) ** -1)",
    "caught(lambda: 1 / (r - 3.5))",
    "caught(lambda: (r - 3.5) ** -1)",
    "((r - 4) ** 0.5, (n - 6) ** 0.5, (r - 4.0) ** 2, (n - 6) ** 2)",
    "(n ** 2, n ** -1, 2 ** n, 2.0 ** r, r ** n, n ** r, pow(n, 3, 5), (-2) ** n)",
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


def test_a_division_is_one_compilation() -> None:
    compiled = aot_compile(lambda x, n, r: x / n + 1 / n + 1 / r + n // (n + 1) + r**2)
    for n in (2, 3, 4, 5):
        assert compiled(torch.ones(1), n, n + 0.5) == 2 / n + 1 / (n + 0.5) + (n + 0.5) ** 2
    assert len(compiled.recompiles) == 1


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
