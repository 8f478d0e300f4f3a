"""What objects hold, in words."""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot.objects import Objects, facts_of, integers_in, text_of


class Point(NamedTuple):
    x: Any
    y: Any


class Number(int):
    pass


def walked(value: Any, path: str = "x") -> Objects:
    objects = Objects()
    objects.root(value, path, False)
    return objects


def held(value: Any) -> Any:
    return lambda: value


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ([1, "a"], {"x[0]": "1", "x[1]": "'a'", "len(x)": "2"}),
        ({"k": 1.5}, {"x['k']": "1.5"}),
        (types.SimpleNamespace(a=1, t=torch.ones(1)), {"x.a": "1", "class of x.t": "a tensor"}),
        ([Point(1, torch.ones(1))], {"class of x[0]": "Point", "len(x)": "1"}),
        ([[]], {"len(x)": "1"}),
        (held(3), {"value": "3"}),
        (torch.nn.ReLU(), {"x.training": "True", "x.inplace": "False"}),
    ],
    ids=lambda x: type(x).__name__,
)
def test_facts_by_name(value: Any, facts: dict[str, str]) -> None:
    assert facts_of(walked(value)) == facts


def test_facts_of_arguments_that_are_no_objects() -> None:
    objects = Objects()
    for i, value in enumerate([3, torch.ones(1), "a", [1]]):
        objects.leaf(i, value, f"args[{i}]")
    assert facts_of(objects) == {
        "Python value 0": "int 3", "Python value 2": "str 'a'", "args[3][0]": "1", "len(args[3])": "1"
    }  # fmt: skip


def test_what_is_not_compared_is_no_fact() -> None:
    """Hooks are compared by their numbers, and a list to which a function only appends by nothing."""
    seen: list[int] = [1]

    def append() -> None:
        seen.append(1)

    module = torch.nn.ReLU()
    module.register_forward_hook(held(3))
    objects = Objects()
    objects.root(append, "append", True)
    objects.root(module, "module", True)
    assert set(facts_of(objects)) == {"module.training", "module.inplace", "value"}


def test_integers_with_their_paths() -> None:
    """A bool is no integer here: it does not count."""
    objects = walked({"steps": 3, "flag": True, "rate": 0.5, "inner": types.SimpleNamespace(count=4), "pair": (1, 2)})
    assert list(integers_in(objects)) == [("x['steps']", 3), ("x['inner'].count", 4)]


def number(unit: str) -> Number:
    made: Any = Number(3)
    made.unit = unit
    return made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        ("a", "'a'"),
        (torch.nn.Linear(1, 1), "Linear"),
        (number("cm"), "3 with {'unit': 'cm'}"),
        ("x" * 77, repr("x" * 77)),
        ("x" * 78, "'" + "x" * 59 + "... #60a7c25e"),
    ],
)
def test_values_in_one_short_line(value: object, text: str) -> None:
    assert text_of(value) == text and len(text) < 81 and "\n" not in text


def test_an_iterator_is_told_by_identity() -> None:
    one, other = iter([1]), iter([1])
    assert text_of(one) == text_of(one) != text_of(other) and text_of(one).startswith("list_iterator at 0x")


def test_long_values_are_told_apart() -> None:
    assert text_of("x" * 100 + "a") != text_of("x" * 100 + "b")
