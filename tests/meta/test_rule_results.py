"""What a shape rule must return, and what the error of a missing one says to write."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import ShapeRuleError

SCHEMAS = {
    "one": "(Tensor x) -> Tensor",
    "two": "(Tensor x, int n=3, *, float scale=0.5) -> (Tensor, Tensor)",
    "many": "(Tensor[] xs) -> Tensor[]",
    "mixed": "(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor)",
    "number": "(Tensor x) -> int",
    "perhaps": "(Tensor x) -> Tensor?",
    "write_": "(Tensor(a!) x) -> Tensor(a!)",
    "write_two_": "(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))",
    "write_of": "(Tensor y, Tensor(a!) x) -> Tensor(a!)",
}


@pytest.fixture
def operators() -> Iterator[Any]:
    library = torch.library.Library("rule_results", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        library.define(f"{name}{schema}")
        library.impl(name, _written if name.startswith("write") else lambda *args, **kwargs: None, "CPU")
    yield torch.ops.rule_results
    library._destroy()


def _written(*args: torch.Tensor) -> Any:
    tensors = args[::-1] if len(args) == 2 and args[0].dim() == 1 else args
    for x in tensors[:1]:
        x.add_(1)
    return tensors[0] if len(args) == 1 or args[0].dim() == 1 else args


def _refused(call: Any) -> str:
    with pytest.raises(ShapeRuleError) as error, sa.meta():
        call()
    return str(error.value)


WRONG: dict[str, tuple[str, Any, str]] = {
    "None for a tensor": ("one", None, "returns None, and the operator returns a tensor."),
    "a tuple for a tensor": ("one", ("new",), "returns a tuple of 1: a tensor, and the operator returns a tensor."),
    "a number for a tensor": ("one", 3, "returns 3, and the operator returns a tensor."),
    "one for two": ("two", "new", "returns a tensor, and the operator returns a tuple of 2: a tensor, a tensor."),
    "three for two": ("two", ("new",) * 3, "returns a tuple of 3: a tensor, a tensor, a tensor, and"),
    "a list in two": ("two", ("new", ["new"]), "returns a tuple of 2: a tensor, a list of 1: a tensor, and"),
    "a tensor for a list": ("many", "new", "returns a tensor, and the operator returns a list of tensors."),
    "a tensor for a number": ("number", "new", "returns a tensor, and the operator returns a value of the type int."),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", WRONG)
def test_another_result_than_the_schema_says_is_refused(name: str, operators: Any) -> None:
    operator, result, words = WRONG[name]

    def made(value: Any, x: torch.Tensor) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(made(part, x) for part in value)
        return x.new_empty(2) if value == "new" else value

    def rule(x: Any, *args: Any, **kwargs: Any) -> Any:
        return made(result, x[0] if isinstance(x, list) else x)

    sa.register_meta(getattr(operators, operator))(rule)
    x = torch.ones(3)
    text = _refused(lambda: getattr(operators, operator)([x] if operator == "many" else x))
    assert words in text
    assert f'File "{__file__}", line {rule.__code__.co_firstlineno}' in text
    assert f"torch.ops.rule_results.{operator}.default" in text


def test_what_the_schema_allows_is_taken(operators: Any) -> None:
    sa.register_meta(operators.perhaps)(lambda x: None)
    sa.register_meta(operators.two)(lambda x, n=3, *, scale=0.5: [x.new_empty(n), x.new_empty(1)])
    with sa.meta():
        x = sa.MetaTensor(torch.empty(3, device="meta"))
        assert operators.perhaps(x) is None
        assert [tuple(y.shape) for y in operators.two(x)] == [(3,), (1,)]


STUBS = {
    "one": ["def _(x):", "return x.new_empty(...)  # the result's shape"],
    "two": ["def _(x, n=3, *, scale=0.5):", "return x.new_empty(...), x.new_empty(...)  # the shape of each result"],
    "many": ["def _(xs):", "return [xs[0].new_empty(...)]  # the result's shape"],
    "mixed": ["def _(x, y):", "return x, x.new_empty(...)  # the shape of each result"],
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", STUBS)
def test_the_rule_to_write_returns_as_many_results_as_the_operator(name: str, operators: Any) -> None:
    x = torch.ones(3)
    args: list[Any] = {"many": [[x]], "mixed": [x, x]}.get(name, [x])
    text = _refused(lambda: getattr(operators, name)(*args))
    assert all(line in text for line in STUBS[name]), text


def test_an_operator_that_returns_what_it_writes_needs_no_rule(operators: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x.clone(), y.clone()
        operators.write_(a)
        first, second = operators.write_two_(a, b)
        return operators.write_of(y, first), second, a, b

    x, y = torch.rand(2, 3), torch.rand(4)
    expected = program(x, y)
    for dynamic in (False, True):
        got = sa.aot_compile(program, dynamic=dynamic)(x, y)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    with sa.meta():
        assert operators.write_(torch.empty(3)).shape == (3,)


def test_a_rule_without_lines_is_named(operators: Any) -> None:
    sa.register_meta(operators.one)(functools.partial(lambda n, x: n, 3))
    assert "functools.partial" in _refused(lambda: operators.one(torch.ones(3)))
