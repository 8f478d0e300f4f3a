"""The part of a guard that compares objects."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.objects import ObjectGuards, Objects

A, B = torch.ones(1), torch.ones(2)


class Point(NamedTuple):
    x: Any
    y: Any


class Cell:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def method(self) -> Any: ...

    def other(self) -> Any: ...


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


class Loud(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError


class Number(int):
    pass


def number(unit: str) -> Number:
    made: Any = Number(3)
    made.unit = unit
    return made


def guard_of(value: Any, written: frozenset[str] = frozenset()) -> Callable[[Any], Any]:
    """Returns what tells, of another value, the tensors that it holds; None where it is of another kind."""
    objects = Objects()
    objects.leaf(0, value, "x")
    source = GuardedSource("guard", "leaves", "", (None, "None"))
    guards = ObjectGuards(objects, source, written)
    guards.leaves()
    guards.distinct()
    found = [guards.tensors[i] for i in range(len(objects.tensors))]
    source.line(f"return ({''.join(f'{name}, ' for name in found)})")
    built = source.build()
    return lambda other: built([other])


def held(x: Any) -> Any:
    return lambda: x


CELL = Cell()
FUNCTION = held(1)
MANY = range(20)

KINDS: dict[str, tuple[Callable[[Any], Any], list[Callable[[Any], Any]]]] = {
    "list": (lambda t: [t, 1], [lambda t: [t, 2], lambda t: [t], lambda t: (t, 1), lambda t: [t, True],
                                lambda t: Loud([t, 1])]),
    "list of a user": (lambda t: Loud([t, 1]), [lambda t: Loud([t, 2]), lambda t: [t, 1]]),
    "deque": (lambda t: deque([t], 3), [lambda t: deque([t], 4), lambda t: deque([t, 1], 3), lambda t: [t]]),
    "dict": (lambda t: {"a": t, 1: 2}, [lambda t: {1: 2, "a": t}, lambda t: {"a": t, True: 2}, lambda t: {"a": t},
                                        lambda t: OrderedDict({"a": t, 1: 2}), lambda t: {"a": t, 1: 3}]),
    "dict with a default": (lambda t: defaultdict(list, a=t), [lambda t: defaultdict(set, a=t)]),
    "dict with a tensor for a key": (lambda t: {t: 1}, [lambda t: {t: 2}, lambda t: {}, lambda t: {t: 1, "a": 1}]),
    "long list": (lambda t: [[t], [*MANY]], [lambda t: [[t], [*MANY, 1]], lambda t: [[t], [*MANY][::-1]]]),
    "long dict": (lambda t: [t, dict.fromkeys(MANY)], [lambda t: [t, dict.fromkeys([*MANY][::-1])]]),
    "set": (lambda t: [t, {1, CELL}], [lambda t: [t, {1, Cell()}], lambda t: [t, {2, CELL}]]),
    "object": (lambda t: Cell(a=t, b=None), [lambda t: Cell(a=t), lambda t: Cell(a=t, b=0),
                                             lambda t: Cell(a=t, b=None, c=1),
                                             lambda t: types.SimpleNamespace(a=t, b=None)]),
    "slots": (lambda t: Slotted(x=t), [lambda t: Slotted(x=t, y=1), lambda t: Slotted(y=t), lambda t: Cell(x=t)]),
    "named tuple": (lambda t: [Point(t, 1)], [lambda t: [(t, 1)], lambda t: [Point(t, 2)]]),
    "method": (lambda t: [Cell(a=t).method], [lambda t: [Cell(a=t, b=1).method], lambda t: [Cell(a=t).other],
                                              lambda t: [Cell(a=t)]]),
    "partial": (lambda t: functools.partial(max, t, key=1), [lambda t: functools.partial(min, t, key=1),
                                                             lambda t: functools.partial(max, t, key=2)]),
    "a mark": (lambda t: [t, CELL], [lambda t: [t, Cell()]]),
    "function": (lambda t: [t, FUNCTION], [lambda t: [t, held(1)]]),
    "number with attributes": (lambda t: [t, number("cm")], [lambda t: [t, number("m")], lambda t: [t, 3]]),
    "two objects": (lambda t: [t, Cell(a=1), Cell(a=1)], [lambda t: [t, *[Cell(a=1)] * 2]]),
    "one object twice": (lambda t: [Cell(a=t)] * 2, [lambda t: [Cell(a=t), Cell(a=t)]]),
}  # fmt: skip
"""What makes an object around a tensor; and what makes others around it that are compiled on their own."""


@pytest.mark.parametrize("name", KINDS)
def test_what_fits_and_what_does_not(name: str) -> None:
    """Objects are compared by what they hold, and the tensors are found wherever they stand."""
    make, others = KINDS[name]
    fits = guard_of(make(A))
    assert all(tensor is B for tensor in fits(make(B))) and len(fits(make(B))) >= 1
    for other in others:
        assert fits(other(B)) is None


def test_a_mark_that_is_written_is_compared_by_what_it_holds() -> None:
    assert guard_of(Cell(), frozenset({"x"}))(Cell()) == () and guard_of(Cell())(Cell()) is None


def test_a_value_that_changes_in_place_is_compared_with_what_it_was() -> None:
    value: Any = [number("cm"), A]
    fits = guard_of(value)
    value[0].unit = "m"
    assert fits(value) is None and fits([number("cm"), A]) == (A,)


def test_slots_of_an_object_that_has_attributes_besides() -> None:
    class Mixed(Slotted):
        pass

    held, x = Mixed(x=2, y=0), torch.ones(1)
    held.z = 1
    compiled = aot_compile(lambda x: x * held.x + held.z)
    for held.x, held.z in ((2, 1), (2, 1), (3, 1), (3, 2), (2, 1)):
        assert compiled(x).item() == held.x + held.z
    del held.y
    held.y = torch.ones(1)
    assert compiled(x).item() == 3


def test_objects_that_hold_themselves() -> None:
    def linked(tensor: Any, other: Any = None) -> Cell:
        cell = Cell(x=tensor)
        cell.itself = other or cell  # type: ignore[attr-defined]
        return cell

    fits = guard_of(linked(A))
    assert fits(linked(B)) == (B,) and fits(linked(B, linked(B))) is None


def test_what_a_function_holds_is_compared_where_it_is() -> None:
    """Pinned objects are the same at each call: their contents are read of them, and not of arguments."""
    box = Cell(scale=2, x=A)
    objects = Objects()
    objects.root(held(box), "fn", True)
    source = GuardedSource("guard", "", "", (None, "None"))
    guards = ObjectGuards(objects, source, frozenset())
    guards.pinned([("fn", objects.holders[0].value)])
    source.line(f"return {guards.tensors[0]}")
    fits = source.build()
    box.x = B  # type: ignore[attr-defined]
    assert fits() is B
    box.scale = 3  # type: ignore[attr-defined]
    assert fits() is None


@pytest.mark.parametrize("count", [3, 30])
def test_a_long_dict_may_have_a_tensor_for_a_key(count: int) -> None:
    """A long dict of Python values is compared at once, but not where a key is an input of the graph."""
    key = torch.rand(2)
    holder = types.SimpleNamespace(table={key: 1, **{str(i): i for i in range(count)}})
    compiled = aot_compile(lambda x, holder: x * len(holder.table))
    x: Any = torch.rand(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, holder), x * (count + 1))
    assert not compiled.recompiles
    holder.table["0"] = 5
    compiled(x, holder)
    assert len(compiled.recompiles) == 1


def plain(x: torch.Tensor) -> torch.Tensor:
    return x


def reads_attribute(x: torch.Tensor) -> Any:
    return plain(x) * getattr(plain, "factor", 5)


def tries_attribute(x: torch.Tensor, held: Any) -> Any:
    try:
        return held.of(x) * held.of.factor
    except AttributeError:
        return x * 5


@pytest.mark.parametrize(
    ("fn", "more"),
    [(reads_attribute, ()), (tries_attribute, (types.SimpleNamespace(of=plain),))],
    ids=["global", "held"],
)
def test_an_attribute_that_a_function_gets_later(fn: Any, more: Any) -> None:
    compiled = aot_compile(fn)
    for factor in (None, 3, None):
        vars(plain).clear() if factor is None else setattr(plain, "factor", factor)
        assert torch.equal(compiled(B, *more), fn(B, *more))
    assert len(compiled.recompiles) == 1


def test_an_object_in_a_tuple_in_a_set_is_compared_by_what_it_holds() -> None:
    cell = Cell(factor=2)

    def scaled(x: torch.Tensor, cells: list[set[Any]]) -> torch.Tensor:
        for number, one in cells[0]:
            x = x * number * one.factor
        return x

    compiled, cells = aot_compile(scaled), [{(3, cell)}]
    assert compiled(A, cells).item() == 6
    cell.factor = 5
    assert compiled(A, cells).item() == 15
    assert compiled.recompiles == ["args[1][0][0][1].factor: 2 before, 5 now"]


class WithoutLength(tuple[Any, ...]):
    def __len__(self) -> int:
        raise NotImplementedError


class OtherElements(tuple[Any, ...]):
    def __iter__(self) -> Any:
        return iter(("no", "such"))


class WithoutItems(tuple[Any, ...]):
    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError


class WithoutAttributes(tuple[Any, ...]):
    __slots__ = ()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        raise NotImplementedError


class ListWithoutLength(list[Any]):
    def __len__(self) -> int:
        raise NotImplementedError


class DictWithoutLength(dict[Any, Any]):
    def __len__(self) -> int:
        raise NotImplementedError

    def items(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("cls", [
    WithoutLength, OtherElements, WithoutItems, WithoutAttributes, ListWithoutLength, DictWithoutLength
])  # fmt: skip
@pytest.mark.parametrize("values", [[torch.ones(1), 2], [2, 3], [[2], 3], [*range(1, 12)]])
def test_a_class_of_sequences_that_hides_what_it_holds(cls: Any, values: list[Any]) -> None:
    base: Any = next(base for base in (tuple, list, dict) if issubclass(cls, base))

    def made(values: list[Any]) -> Any:
        return cls(enumerate(values)) if base is dict else cls(values)

    def program(cell: Cell, x: torch.Tensor) -> torch.Tensor:
        for i in range(len(values)):
            each = base.__getitem__(cell.held, i)  # type: ignore[attr-defined]
            x = x * (each[0] if type(each) is list else each)
        return x

    cell, x, compiled = Cell(held=made(values)), torch.ones(3), aot_compile(program)
    for _ in range(2):
        assert torch.equal(compiled(cell, x), program(cell, x))
        cell.held = made([*values])
    assert not compiled.recompiles
    if base is tuple:
        cell.held = made([values[0], 7, *values[2:]])
    else:
        base.__setitem__(cell.held, 1, 7)
    assert torch.equal(compiled(cell, x), program(cell, x)) and len(compiled.recompiles) == 1
