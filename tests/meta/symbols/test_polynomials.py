"""What is decided of sizes without sympy, held against all values that small symbols may have."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.polynomials import SIGNS, Polynomials
from subclass_aot.meta.symbols import Symbols

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {name: getattr(operator, name) for name in SIGNS}
VALUES = [dict(zip("abc", values, strict=True)) for values in itertools.product(range(2, 11), repeat=3)]


def drawn(depth: int, draw: random.Random) -> str:
    """Returns an expression of three sizes as Python text."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice([*"abc", *"abc", "1", "2", "3"])
    kind = draw.choice(["+", "-", "*", "//", "%", "pad"])
    one = drawn(depth - 1, draw)
    if kind in ("//", "%"):
        return f"(({one}) {kind} {draw.choice(['2', '3', '4', 'a', '(b * c)', '(a + 1)'])})"
    if kind == "pad":
        by = draw.choice([2, 4])
        return f"({by} * ((({one}) + {by - 1}) // {by}))"
    return f"(({one}) {kind} ({drawn(depth - 1, draw)}))"


def sizes() -> tuple[Symbols, dict[str, Any]]:
    symbols = Symbols()
    return symbols, {name: symbols.size(n, name) for name, n in zip("abc", (5, 8, 6), strict=True)}


def expression_of(number: Any) -> Any:
    import sympy

    return sympy.Integer(number) if type(number) is int else _torch.symbolic.original_expression_of(number)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_decided_holds_of_all_values(seed: int) -> None:
    draw = random.Random(seed)
    symbols, names = sizes()
    polynomials = Polynomials(symbols.env)
    one, other = drawn(3, draw), drawn(3, draw)
    first, second = (expression_of(eval(text, dict(names))) for text in (one, other))
    pairs = [(eval(one, dict(values)), eval(other, dict(values))) for values in VALUES]
    least = polynomials.least(first)
    assert least is None or least <= min(a for a, _ in pairs)
    for name, compare in COMPARISONS.items():
        found = polynomials.decide(name, first, second)
        if isinstance(found, bool):
            assert {compare(a, b) for a, b in pairs} == {found}, (one, name, other)
    if polynomials.same(first, second):
        assert all(a == b for a, b in pairs), (one, other)
    quotient = polynomials.quotient(first, second)
    if quotient is not None:
        found = [int(quotient.xreplace(_values(names, values))) for values in VALUES]
        assert found == [a // b for a, b in pairs], (one, other)
    rest = polynomials.rest(first, second) if all(b > 0 for _, b in pairs) else None
    if rest is not None:
        assert [int(rest.xreplace(_values(names, values))) for values in VALUES] == [a % b for a, b in pairs]


@pytest.mark.parametrize("seed", range(60))
def test_what_follows_from_guards_holds_where_these_hold(seed: int) -> None:
    """Whatever a few guards say of an example, more is decided only as it is for all values that pass them."""
    draw = random.Random(1000 + seed)
    symbols, names = sizes()
    polynomials = Polynomials(symbols.env)
    example = dict(zip("abc", (5, 8, 6), strict=True))
    left = VALUES
    for _ in range(3):
        one, other, name = drawn(2, draw), drawn(1, draw), draw.choice([*SIGNS, "eq", "eq"])
        question = polynomials.decide(name, *(expression_of(eval(text, dict(names))) for text in (one, other)))
        holds = [COMPARISONS[name](eval(one, dict(v)), eval(other, dict(v))) for v in left]
        if isinstance(question, bool):
            assert set(holds) == {question}, (one, name, other)
        elif question is not None:
            answer = COMPARISONS[name](eval(one, dict(example)), eval(other, dict(example)))
            polynomials.learn(question, answer)
            left = [v for v, held in zip(left, holds, strict=True) if held is answer]
    for _ in range(20):
        one, other = drawn(2, draw), drawn(2, draw)
        first, second = (expression_of(eval(text, dict(names))) for text in (one, other))
        pairs = [(eval(one, dict(values)), eval(other, dict(values))) for values in left]
        least = polynomials.least(first)
        assert least is None or least <= min(a for a, _ in pairs), one
        for name, compare in COMPARISONS.items():
            found = polynomials.decide(name, first, second)
            if isinstance(found, bool):
                assert {compare(a, b) for a, b in pairs} == {found}, (one, name, other)


def _values(names: dict[str, Any], values: dict[str, int]) -> dict[Any, int]:
    return {expression_of(names[name]): n for name, n in values.items()}


@pytest.mark.parametrize(
    ("one", "comparison", "other", "answer"),
    [
        ("a * b", "gt", "a", True),
        ("a * b - a", "lt", "2", False),
        ("8 * ((a + 7) // 8)", "ge", "a", True),
        ("8 * ((a + 7) // 8) - a", "le", "7", True),
        ("(a + 11) // 8", "eq", "1 + (a + 3) // 8", True),
        ("a % 8 + 8 * (a // 8)", "eq", "a", True),
        ("2 * a + 1", "eq", "2 * b", False),
        ("a * c", "ne", "b * c", None),
        ("((a - 1) // 4 - 7) // 8 + 1", "eq", "(a + 3) // 32", True),
        ("a % (a * b)", "eq", "a", True),
        ("(a * b * 6) % (3 * b)", "eq", "0", True),
        ("a // (a + b)", "eq", "0", True),
        ("a * (b // 4) * 4", "le", "a * b", True),
        ("((a - 1) // 2 + 1 - 1) // 2", "ge", "0", True),
    ],
)
def test_what_is_decided(one: str, comparison: str, other: str, answer: bool | None) -> None:
    symbols, names = sizes()
    given = [expression_of(eval(text, dict(names))) for text in (one, other)]
    found = Polynomials(symbols.env).decide(comparison, *given)
    assert found is answer or answer is None and isinstance(found, tuple)


def test_what_a_guard_says_is_known_of_the_same_in_other_words() -> None:
    symbols, names = sizes()
    a, b, c = names.values()
    assert bool(a * c < b * c) and bool(a % 8 == 5) and bool(b % 4 == 0)
    count = len(symbols.env.guards)
    assert bool(b > a) and bool(4 * (b // 4) == b) and bool((b + 3) // 4 == b // 4) and bool(b * a // 4 == b // 4 * a)
    assert len(symbols.env.guards) == count


def test_sizes_that_depend_on_data_are_no_polynomials() -> None:
    symbols = Symbols()
    n: Any = symbols.unbacked()
    assert Polynomials(symbols.env).of(expression_of(n)) is None
    assert Polynomials(symbols.env).decide("ge", expression_of(n), expression_of(0)) is None


def test_what_is_too_long_is_not_decided() -> None:
    symbols = Symbols()
    whole: Any = 1
    for i in range(12):
        whole = whole * (symbols.size(5, f"x.size({i})") + 1)
    assert Polynomials(symbols.env).of(expression_of(whole)) is None
    assert bool(whole > 1) and torch.sym_max(whole, 1) is not None
