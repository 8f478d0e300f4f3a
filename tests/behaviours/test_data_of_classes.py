"""Data of classes of tuples, exceptions and enumerations: read at each call, and left as eager mode leaves it."""

from __future__ import annotations

import collections
import enum
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa


def world() -> types.SimpleNamespace:
    """New classes, which belong to one test, and an object of each."""

    class Tuple(tuple[Any, ...]):
        level: Any = 2

    class Made(collections.namedtuple("Made", "a b")):  # noqa: PYI024
        level: Any = 2
        __slots__ = ()

    class Typed(typing.NamedTuple):
        a: Any = 1

    class OfTyped(Typed):
        level: Any = 2

    class Stop(Exception):
        level: Any = 2

    class Kind(enum.Enum):
        A = 1

        @property
        def twice(self) -> Any:
            return self.level * 2  # type: ignore[attr-defined]

    class Number(enum.IntEnum):
        A = 1

    class Flag(enum.Flag):
        A = 1

    for kind in (Kind, Number, Flag):
        kind.level = 2  # type: ignore[attr-defined]
    objects = Tuple((1,)), Made(1, 2), OfTyped(), Stop("a"), Kind.A, Number.A, Flag.A
    return types.SimpleNamespace(**{type(value).__name__: value for value in objects})


KINDS = ["Tuple", "Made", "OfTyped", "Stop", "Kind", "Number", "Flag"]
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "object": lambda value, x: x * value.level,
    "class": lambda value, x: x + type(value).level,
    "with others": lambda value, x: x - [value, (x, value)][0].level,
}


def changes(kind: Any) -> typing.Iterator[None]:
    yield
    kind.level = 3
    yield
    kind.level = torch.full((2,), 5.0)
    yield
    kind.level.add_(1)
    yield
    kind.level = [torch.ones(2), 2][1]
    yield


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KINDS)
def test_what_changes_is_seen(name: str, way: str, dynamic: bool | None) -> None:
    value, fn = getattr(world(), name), WAYS[way]
    held, given = sa.aot_compile(lambda x: fn(value, x), dynamic=dynamic), sa.aot_compile(fn, dynamic=dynamic)
    for _ in changes(type(value)):
        for x in (torch.ones(2, requires_grad=True), sa.TwoTensor(torch.ones(2), torch.zeros(2))):
            assert torch.equal(held(x), fn(value, x)) and torch.equal(given(value, x), fn(value, x))


@pytest.mark.parametrize("name", KINDS)
def test_what_a_call_changes_is_changed_at_each(name: str) -> None:
    value = getattr(world(), name)

    def fn(x: Any) -> Any:
        type(value).level += 1
        type(value).last = x * 2
        return x * value.level

    compiled = sa.aot_compile(fn)
    for i in range(4):
        x = torch.full((2,), float(i))
        assert torch.equal(compiled(x), x * (3 + i)) and torch.equal(type(value).last, x * 2)
        assert value.level == 3 + i


def test_an_exception_that_is_caught_inside() -> None:
    stop = type(world().Stop)

    def fn(x: Any) -> Any:
        try:
            raise stop(3)
        except stop as error:
            return x * error.level * error.args[0]

    compiled = sa.aot_compile(fn)
    for _ in changes(stop):
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_a_recompile_names_it() -> None:
    value = world().Tuple
    compiled = sa.aot_compile(lambda x: x * value.level)
    compiled(torch.ones(2))
    type(value).level = 4
    compiled(torch.ones(2))
    (why,) = compiled.recompiles
    assert why.endswith("Tuple.level: 2 before, 4 now")


def test_what_python_puts_there_does_not_count() -> None:
    made = world()
    values = made.OfTyped, made.Made, made.Kind, made.Number, made.Flag
    compiled = sa.aot_compile(lambda x: x * len(values))
    compiled(torch.ones(2))
    assert not any("_field" in line or "_member" in line for line in compiled.explain().splitlines())
    assert made.Flag | type(made.Flag)(0)  # Python keeps members that it has made in a table of the class
    compiled(torch.ones(2))
    assert not compiled.recompiles
