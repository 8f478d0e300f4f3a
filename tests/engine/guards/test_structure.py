"""Arguments are taken apart by generated code, and have the same structure as those of the call that was traced."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch

import subclass_aot as sa
from subclass_aot.engine.call import Arguments, flatten
from subclass_aot.engine.facts import global_state
from subclass_aot.engine.guards import MISS
from subclass_aot.engine.guards.structure import is_plain


class Pair(NamedTuple):
    a: Any
    b: Any


class Own(dict[str, Any]):
    pass


X, Y = torch.arange(3.0), torch.ones(3)
MANY = {f"k{i}": i for i in range(40)}

ARGUMENTS: list[Any] = [
    ([X],), ((X,),), ({"a": X},), ([X, Y],), ([X, [Y]],), ([X], Y), (), ([],), ({},), ((),), (None,), ("a",), (X, "a"),
    ({"a": X, "b": 1},), ({"b": 1, "a": X},), ({"a": X, "b": True},), ({"a": X, "b": 1.0},), ({"a": X, "b": [1]},),
    ({"a": X, 1: X},), ({"a": X, True: X},), (Pair(X, Y),), (OrderedDict(a=X),), (Own(a=X),),
    (X, MANY), (X, {**MANY, "k3": 4}), (X, {**MANY, "k3": 3.0}), (X, {**MANY, "k3": True}), (X, [*MANY.values()]),
    (X, tuple(MANY.values())), (X, {**MANY, "more": 1}), (X, {**MANY, "k3": X}), (X, dict(reversed(MANY.items()))),
    (X, Own(MANY)), (X, {**MANY, "k3": [3]}), (X, [0.0] * 20), (X, [-0.0] * 20), (X, [float("nan")] * 20),
    (X, [0] * 20), ({"a": {"b": (X, [Y, "t"])}},), ({"a": {"b": (X, [Y, "u"])}},), ({"a": {"b": (X, [Y])}},),
    (torch.nn.Linear(3, 3), X), (X, {**MANY, "k0": X, "k9": [Y, 1], "k39": Y}), (X, {**MANY, "k0": X, "k9": [Y, 2]}),
    (X, {**MANY, "k0": X, "k9": [Y, 1], "k39": Y, "k3": 4}), (X, [X, *MANY.values(), Y]), (X, [Y, X, *MANY.values()]),
    (X, [X, *MANY.values(), None]), (X, [None, *MANY.values(), Y]), (X, (X, *MANY.values(), Y)),
]  # fmt: skip


def whole(*args: Any, **kwargs: Any) -> Any:
    list(args)
    len(kwargs)
    return X * 2


@pytest.mark.parametrize("first", range(len(ARGUMENTS)))
def test_what_fits_one_structure_fits_no_other(first: int) -> None:
    """What optree takes for another structure, and what holds another value, fits in no case."""
    args = ARGUMENTS[first]
    compiled = sa.aot_compile(whole, fw_compiler="eager", dynamic=False)
    compiled(*args)
    latest = compiled._specializations.latest
    assert latest is not None
    entry = latest.entry
    for number, other in enumerate(ARGUMENTS):
        leaves, treespec = flatten((other, {}))
        found = entry.call(other, {}, leaves, treespec, global_state(), check_only=True)
        assert (found is not MISS) is (number == first), (args, other)


def test_keywords() -> None:
    compiled = sa.aot_compile(whole, fw_compiler="eager")
    for kwargs in ({"a": [X]}, {"a": [X], "b": 1}, {"b": [X]}, {"b": 1, "a": [X]}):
        compiled(**kwargs)
    assert len(compiled.recompiles) == 3
    compiled(a=[X], b=1)
    assert len(compiled.recompiles) == 3


@pytest.mark.parametrize("values", [range(1000), [i + 0.5 for i in range(1000)], [f"text {i}" for i in range(1000)]])
@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_long_tables(values: Any, kind: Any) -> None:
    """Equal values fit, whether they are the same objects or not; any other does not."""

    def made(entries: Any) -> Any:
        return {f"k{i}": x for i, x in enumerate(entries)} if kind is dict else kind(entries)

    compiled = sa.aot_compile(lambda x, table: x * len(table), fw_compiler="eager", dynamic=False)
    values = list(values)
    table = made(values)
    for again in (table, table, made(values), made([type(x)(str(x)) for x in values])):
        compiled(X, again)
    assert compiled.recompiles == []
    compiled(X, made([*values[:-1], values[0]]))
    assert len(compiled.recompiles) == 1


def test_a_long_table_that_changes_in_place() -> None:
    table = dict(MANY)
    compiled = sa.aot_compile(lambda x, table: x * sum(table.values()), fw_compiler="eager")
    for number in (3, 4, 3, 7, 8):
        table["k3"] = number
        assert compiled(X, table).equal(X * sum(table.values()))


def test_a_long_table_of_other_things_beside() -> None:
    """Tensors and lists in it are found, and values between them are compared."""

    def program(x: Any, table: Any) -> Any:
        return sum(x for x in table.values() if not isinstance(x, list)) + table["k9"][0]

    compiled = sa.aot_compile(program, fw_compiler="eager")
    for i in range(2, 5):
        table = {**MANY, "k0": X * i, "k9": [Y * i, "a"], "k39": Y}
        assert compiled(X, table).equal(program(X, table))
    assert compiled.recompiles == []
    table["k20"] = 7
    assert compiled(X, table).equal(program(X, table)) and len(compiled.recompiles) == 1


def test_which_structures_are_plain() -> None:
    for made, plain in ((OrderedDict(a=X), False), (Pair(X, X), False), ([X], True), ({"a": X}, True), ({1: X}, False)):
        assert is_plain(Arguments.of(whole, (made,), {})) is plain
    assert not is_plain(Arguments.of(whole, (X,), {}))


def test_many_structures_are_found() -> None:
    compiled = sa.aot_compile(lambda x, n, s: x * 2 if n or s else x, fw_compiler="eager", dynamic=False)
    for n, text in itertools.product((1, 2, 3), ("a", "b", "c")):
        compiled(X, [n], {"s": text})
    count = len(compiled.recompiles)
    for n, text in itertools.product((1, 2, 3), ("a", "b", "c")):
        compiled(X, [n], {"s": text})
    assert len(compiled.recompiles) == count
