"""The extension and its reference in Python say the same about everything."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subclass_aot.base import exact, hooks

ROOT = Path(__file__).resolve().parents[2]


class Number(int):
    """An instance of a subclass."""


class Liar:
    """Claims another class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int


class Values(list[Any]):
    """A list that is not exactly one."""


VALUES = (1, True, Number(1), "a", None, 1.5, [], Liar())
CLASSES = (int, bool, Number, str, type(None), float, list, Liar)
FUNCTIONS = [exact, hooks]  # the same twice where the extension is not built


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        result = call()
    except Exception as error:
        return type(error), str(error)
    return id(result), type(result)


@given(st.data(), st.sampled_from([list, tuple, iter, set, Values, dict.fromkeys, lambda values: (v for v in values)]))
def test_both_say_the_same(data: st.DataObject, kind: Callable[[Any], Any]) -> None:
    positions = data.draw(st.lists(st.integers(0, len(VALUES) - 1), max_size=5))
    classes = data.draw(
        st.just(tuple(CLASSES[i] for i in positions)) | st.lists(st.sampled_from(CLASSES), max_size=5).map(tuple)
    )
    flat = [VALUES[i] for i in positions if i != 6 or kind in (list, tuple, Values)]  # a list is not hashable
    values = kind(flat)
    assert outcome(lambda: exact.exactly(values, classes)) == outcome(lambda: hooks.exactly(values, classes))
    expected = tuple(map(type, flat)) == classes
    assert exact.are_exactly(classes, *flat) is hooks.are_exactly(classes, *flat) is expected


ONE = 1  # one object, to be found again


class Thing:
    """Has an attribute, which may do something when it is read."""

    def __init__(self, value: object, read: Callable[[], object] = lambda: None) -> None:
        self._value, self._read = value, read

    @property
    def value(self) -> object:
        self._read()
        return self._value


@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_attributes(functions: ModuleType, count: int) -> None:
    def has(values: object, attributes: tuple[object, ...], classes: tuple[type, ...] = (Thing,) * count) -> bool:
        found = functions.have_exactly(values, classes, "value", attributes)
        assert found in (True, False)
        return found is True

    things = [Thing(name) for name in CLASSES for _ in range(count)][:count]
    wanted = tuple(thing.value for thing in things)
    assert has(things, wanted) and has(tuple(things), wanted)
    assert has(things, (None,) * count)  # not read
    assert not has(things, (*wanted[:-1], ONE)) and not has([*things[:-1], Thing(None)], wanted)
    assert not has(things, wanted, (*(Thing,) * (count - 1), int)) and not has([*things, things[0]], wanted)
    assert not has(Values(things), wanted) and not has(things[1:], wanted)
    iterator = iter(things)
    assert not has(iterator, wanted) and list(iterator) == things


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_what_reading_raises_is_raised(functions: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        functions.have_exactly([Thing(1, lambda: 1 // 0)], (Thing,), "value", (1,))
    with pytest.raises(AttributeError, match="value"):
        functions.have_exactly([object()], (object,), "value", (1,))


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_the_list_may_change_while_it_is_read(functions: ModuleType) -> None:
    things: list[Thing] = []
    things += [Thing(ONE, things.clear) for _ in range(30)]
    assert functions.have_exactly(things, (Thing,) * 30, "value", (ONE,) * 30) is False
    assert things == []


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_an_iterator_is_refused_untouched(functions: ModuleType) -> None:
    values = iter([1, 2])
    with pytest.raises(TypeError, match=r"^the values are not of exactly these classes$"):
        functions.exactly(values, (int, int))
    assert list(values) == [1, 2]


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_no_values(functions: ModuleType) -> None:
    assert functions.exactly([], ()) == [] and functions.are_exactly(())


@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize("name", ["exactly", "are_exactly", "have_exactly"])
@pytest.mark.parametrize("arguments", [(), (1,), (1, 2), ([1], [int]), (1, 2, 3), ([1], (int,), "real", ())])
def test_misuse(functions: ModuleType, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(functions, name)(*arguments)


class Holder:
    """Anything with a `__dict__`."""


NAMES = ("a", "b", "c")
CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda table: None,
    "the same again": lambda table: table.update(table),
    "an equal value": lambda table: table.update(b=[]),
    "another value": lambda table: table.update(a=0),
    "one more": lambda table: table.update(d=1),
    "one less": lambda table: table.pop("c"),
    "another name": lambda table: table.update(d=table.pop("c")),
    "another order": lambda table: table.update(a=table.pop("a")),
    "none at all": lambda table: table.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [dict, OrderedDict, Holder])
@pytest.mark.parametrize("functions", FUNCTIONS)
def test_same_items(functions: ModuleType, kind: Any, change: str) -> None:
    holders = [kind(), {}, Holder(), kind()]
    tables = [holder if isinstance(holder, dict) else vars(holder) for holder in holders]
    for table in tables[::2]:
        table.update(zip(NAMES, (1.5, [], None), strict=True))
    kept = tuple(
        part for holder, table in zip(holders, tables, strict=True) for part in (holder, (*sum(table.items(), ()),))
    )
    assert functions.same_items(kept)
    CHANGES[change](tables[0])
    assert functions.same_items(kept) is (change in ("nothing", "the same again"))


class Slotted:
    __slots__ = ("n", "__dict__")

    def __getattribute__(self, name: str) -> Any:
        assert name != "n", "the class is not asked"
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_same_items_of_a_slot(functions: ModuleType) -> None:
    holder, one, other = Slotted(), [], []
    empty, full = ((holder, "n"), ()), ((holder, "n"), (one,))
    assert functions.same_items(empty) and not functions.same_items(full)
    holder.n = one
    assert functions.same_items(full) and not functions.same_items(empty)
    holder.n = other
    assert not functions.same_items(full)
    assert exact.items_of((holder, "n"))[0] is other


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_same_items_of_a_set(functions: ModuleType) -> None:
    """Sets without elements and with some, which modules have among their attributes."""
    one, other = Holder(), Holder()
    empty: set[Any] = set()
    full = {one, "a", None}
    assert functions.same_items((empty, (), full, tuple(full)))
    full.remove(one)
    assert not functions.same_items((full, (one, *full)))
    before = tuple(full)
    full.add(other)
    assert not functions.same_items((full, before))
    full.remove(None)
    assert not functions.same_items((full, before))
    empty.add(one)
    assert not functions.same_items((empty, ()))


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_same_items_sees_another_dict(functions: ModuleType) -> None:
    holder = Holder()
    holder.a = value = object()  # type: ignore[attr-defined]
    kept = (holder, (*vars(holder), value))
    holder.__dict__ = dict(vars(holder))
    assert functions.same_items(kept)
    holder.__dict__ = {"a": 3}
    assert not functions.same_items(kept)
    assert functions.same_items(())


@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize("kept", [None, [], (1,), ({},), (1, ())])
def test_misuse_of_same_items(functions: ModuleType, kept: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        functions.same_items(kept)


class Watched:
    """Its `__setattr__` is for others."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_hold_sets_attributes_past_the_class(functions: ModuleType) -> None:
    holder, values = Watched(), ([], object())
    assert functions.hold(holder, ("a", "b"), *values) is None
    assert vars(holder) == dict(zip("ab", values, strict=True)) and holder.a is values[0]
    functions.hold(holder, ())
    for misuse in ((), (holder,), (holder, ["a"], 1), (holder, ("a",)), (holder, ("a",), 1, 2), (holder, (1,), 2)):
        with pytest.raises(TypeError):
            functions.hold(*misuse)
    with pytest.raises(AttributeError):
        functions.hold(object(), ("a",), 1)
    assert list(vars(holder)) == ["a", "b"]


def test_references_are_kept_and_released() -> None:
    marker = object()
    values, classes = [marker], (object,)
    holder = Holder()
    holder.__dict__["marker"] = marker
    kept = (holder, (*vars(holder), marker), vars(holder), ("marker", values))
    thing = Thing(marker)
    watched = (marker, values, classes, holder, vars(holder), kept, thing)
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(100):
        assert hooks.exactly(values, classes) is values
        assert hooks.are_exactly(classes, marker) and not hooks.are_exactly((int,), marker)
        with pytest.raises(TypeError):
            hooks.exactly(values, (int,))
        assert hooks.same_items(kept[:2]) and not hooks.same_items(kept)
        assert hooks.have_exactly([thing], (Thing,), "value", (marker,))
        assert not hooks.have_exactly([thing], (Thing,), "value", (thing,))
        hooks.hold(holder, ("marker", "again"), marker, marker)
        del holder.again  # type: ignore[attr-defined]
    assert [sys.getrefcount(x) for x in watched] == before


def test_the_environment_chooses() -> None:
    program = (
        "import os; os.environ['SUBCLASS_AOT_NATIVE'] = '0'\n"
        "from subclass_aot import FlattenPlan, TwoTensor, exact, hooks\n"
        "assert hooks.exactly is exact.exactly and not hooks.one_call_pays\n"
        "import torch; values = [TwoTensor(torch.ones(2), torch.ones(2))] * 40\n"
        "plan = FlattenPlan.of(values)\n"
        "assert plan.unwrap is plan.unwrap_checked and len(plan.unwrap(values)) == 80\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
