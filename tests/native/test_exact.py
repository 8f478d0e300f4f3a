"""The extension and its twin in Python say the same about everything."""

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

from subclass_aot import _native
from subclass_aot._native import twin

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
FUNCTIONS = [twin, _native]  # the same twice where the extension is not built


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
    assert outcome(lambda: twin.exactly(values, classes)) == outcome(lambda: _native.exactly(values, classes))
    expected = tuple(map(type, flat)) == classes
    assert twin.are_exactly(classes, *flat) is _native.are_exactly(classes, *flat) is expected


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
@pytest.mark.parametrize("name", ["exactly", "are_exactly"])
@pytest.mark.parametrize("arguments", [(), (1,), (1, 2), ([1], [int]), (1, 2, 3)])
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


def test_references_are_kept_and_released() -> None:
    marker = object()
    values, classes = [marker], (object,)
    holder = Holder()
    holder.__dict__["marker"] = marker
    kept = (holder, (*vars(holder), marker), vars(holder), ("marker", values))
    watched = (marker, values, classes, holder, vars(holder), kept)
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(100):
        assert _native.exactly(values, classes) is values
        assert _native.are_exactly(classes, marker) and not _native.are_exactly((int,), marker)
        with pytest.raises(TypeError):
            _native.exactly(values, (int,))
        assert _native.same_items(kept[:2]) and not _native.same_items(kept)
    assert [sys.getrefcount(thing) for thing in watched] == before


def test_the_environment_chooses() -> None:
    program = (
        "import os; os.environ['SUBCLASS_AOT_NATIVE'] = '0'\n"
        "from subclass_aot import _native, FlattenPlan, TwoTensor\n"
        "from subclass_aot._native import twin\n"
        "assert _native.exactly is twin.exactly and not _native.ONE_CALL_PAYS\n"
        "import torch; values = [TwoTensor(torch.ones(2), torch.ones(2))] * 40\n"
        "plan = FlattenPlan.of(values)\n"
        "assert plan.unwrap is plan.unwrap_carefully and len(plan.unwrap(values)) == 80\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
