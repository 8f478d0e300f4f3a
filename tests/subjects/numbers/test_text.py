"""Symbolic numbers in text and as keys: the program has the number, and torch has its symbol."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import pprint
import re
from typing import Any, ClassVar, NamedTuple

import pytest
import torch

from subclass_aot import aot_compile, mark_dynamic, trace_joint
from subclass_aot.meta.spec import _interned
from subclass_aot.subjects.numbers.text import numbers_are_written_out

NAMES = {4: "four", 5: "five"}


def methods() -> list[Any]:
    names = ("__repr__", "__str__", "__format__", "__hash__", "__eq__")
    found = [(cls, name) for cls in (torch.SymInt, torch.SymFloat, torch.SymBool) for name in names]
    return [cls.__dict__.get(name) for cls, name in found]


METHODS = methods()
"""Before any trace."""

_OF_TORCH: dict[str, Any] = {}
exec(compile("def text_of(number): return str(number)", torch.__file__, "exec"), _OF_TORCH)


def four_rows() -> torch.Tensor:
    x = torch.rand(4, 2)
    mark_dynamic(x, 0)
    return x


@pytest.mark.parametrize(
    "write, expected",
    [
        (str, "4"),
        (lambda n: f"{n:03d} rows", "004 rows"),
        (lambda n: f"{n * 0.5:.2f}", "2.00"),
        (NAMES.__getitem__, "four"),
    ],
    ids=["str", "format", "a float", "a key"],
)
def test_the_program_has_the_number_and_each_call_its_own(write: Any, expected: str) -> None:
    x = four_rows()
    assert trace_joint(lambda x: write(x.shape[0]), x).signature.outcome.literals == [expected]
    compiled = aot_compile(lambda x: write(x.shape[0]), dynamic=True)
    for rows in (4, 5, 4):
        assert compiled(torch.rand(rows, 2)) == write(rows)


@dataclasses.dataclass(frozen=True)
class Rows:
    count: int


class Sized(NamedTuple):
    rows: int


TEXTS: dict[str, Any] = {
    "a tuple": lambda x: f"{tuple(x.shape)}",
    "a list": lambda x: str(list(x.shape)),
    "a dict": lambda x: repr({"rows": x.shape[0]}),
    "a set": lambda x: str({x.shape[0]}),
    "nested": lambda x: "%s" % [(x.shape[0], [x.numel()])],
    "repr": lambda x: repr(x.shape[0]),
    "by format": lambda x: f"{x.shape[0]!r} of {(x.numel(),)}",
    "a data class": lambda x: str(Rows(x.shape[0])),
    "a named tuple": lambda x: repr(Sized(x.shape[0])),
    "a slice": lambda x: str(slice(0, x.shape[0])),
    "printed": lambda x: pprint.pformat({"rows": x.shape[0]}),
    "JSON": lambda x: json.dumps([x.shape[0], x.shape[0] / 2]),
    "a float": lambda x: str((x.shape[0] / 2,)),
    "a condition": lambda x: f"{x.shape[0] > 4}",
    "conditions": lambda x: str([x.shape[0] > 4, x.shape[0] == 5]),
    "a key": lambda x: {x.shape[0]: 1},
    "a part of a key": lambda x: {(x.shape[0], "rows"): 1},
    "a float as key": lambda x: {x.shape[0] / 2: 1},
    "a condition as key": lambda x: {x.shape[0] > 4: 1},
    "found by a condition": lambda x: {True: "many", False: "few"}[x.shape[0] > 4],
    "a set of conditions": lambda x: {x.shape[0] > 4, x.shape[0] > 5},
    "a frozen set": lambda x: frozenset([x.shape[0]]),
    "a key of a tensor": lambda x: {x.shape[0] > 4: x * 2},
}


@pytest.mark.every_case
@pytest.mark.parametrize("write", TEXTS.values(), ids=TEXTS)
def test_what_is_made_of_numbers_has_no_symbols(write: Any) -> None:
    compiled = aot_compile(lambda x: (write(x), x + 1))
    for rows in (4, 5, 6, 4):
        found, expected = compiled(torch.ones(rows, 2))[0], write(torch.ones(rows, 2))
        assert type(found) is type(expected) and repr(found) == repr(expected)
        if isinstance(found, dict):
            assert list(map(type, found)) == list(map(type, expected))


@pytest.mark.parametrize("file", ["<string>", "<ipython-input-1-abc>", "<program>", "<stdin>", "/tmp/cell.py"])
def test_code_that_was_typed_in_or_generated(file: str) -> None:
    names: dict[str, Any] = {}
    exec(compile("def program(x): return x * len(str(list(x.shape))), repr(tuple(x.shape))", file, "exec"), names)
    compiled = aot_compile(names["program"])
    for rows in (4, 5, 12):
        ours, theirs = compiled(torch.ones(rows)), names["program"](torch.ones(rows))
        assert torch.equal(ours[0], theirs[0]) and ours[1] == theirs[1]


def test_torch_has_the_symbol() -> None:
    trace = trace_joint(lambda x: (_OF_TORCH["text_of"](x.shape[0]), x * x.shape[0]), four_rows())
    (text,) = trace.signature.outcome.literals
    assert re.fullmatch(r"s\d+", text)
    assert torch.equal(trace.graph_module(torch.ones(5, 2))[0], torch.full((5, 2), 5.0))


def test_a_ragged_size_is_no_number_and_stays_what_torch_says() -> None:
    size = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).shape[1]
    before = str(size), hash(size)
    with numbers_are_written_out():
        assert (str(size), hash(size)) == before


def test_afterwards_the_classes_are_as_they_were() -> None:
    with pytest.raises(ZeroDivisionError), numbers_are_written_out():
        assert methods() != METHODS
        print(1 // 0)
    assert methods() == METHODS


@functools.lru_cache
def doubled(shape: tuple[int, ...]) -> list[int]:
    return [2 * size for size in shape]


def without_a_cache(x: torch.Tensor) -> torch.Tensor:
    """As `einops` does."""
    try:
        return x.new_zeros(doubled(x.shape))
    except TypeError:  # a size that is no number
        return x.new_zeros(doubled.__wrapped__(x.shape))


def with_a_dict(x: torch.Tensor) -> torch.Tensor:
    kept: dict[int, int] = {}
    try:
        kept[x.shape[0]] = 2
    except TypeError:
        return x * 2
    return x * kept[x.shape[0]]


@pytest.mark.parametrize("program", [without_a_cache, with_a_dict])
@pytest.mark.parametrize(("dynamic", "recompiles"), [(True, 0), (None, 2)])
def test_a_program_that_goes_without_keys_keeps_its_symbols(
    program: Any, dynamic: bool | None, recompiles: int
) -> None:
    compiled = aot_compile(program, dynamic=dynamic)
    for rows, columns in ((2, 3), (3, 3), (4, 3), (5, 6), (7, 8)):
        x = torch.rand(rows, columns)
        assert torch.equal(compiled(x), program(x))
    assert len(compiled.recompiles) == recompiles


@functools.lru_cache
def rows_of(size: int) -> int:
    return size


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x: x * rows_of(x.shape[0]), lambda x: x * x.shape[0]),
        (lambda x: x * 2 if x.shape[0] in {4, 5} else x * 3, lambda x: x * (3 if x.shape[0] == 6 else 2)),
        (lambda x: x * {x.shape[0]: 2}[x.shape[0]], lambda x: x * 2),
    ],
    ids=["a cache", "a set", "a dict"],
)
def test_where_it_needs_them_they_are_numbers(program: Any, expected: Any) -> None:
    compiled = aot_compile(program, dynamic=True)
    for rows in (4, 6, 4, 5):
        assert torch.equal(compiled(torch.ones(rows, 2)), expected(torch.ones(rows, 2)))
    assert len(compiled.recompiles) == 2


def test_an_error_of_another_kind_that_a_key_leads_to() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * {x.shape[0]: 2}[x.shape[0]]
        except TypeError as error:
            raise KeyError("no such size") from error

    assert aot_compile(program, dynamic=True)(torch.ones(4)).tolist() == [2] * 4
    with pytest.raises(KeyError, match="5"):
        aot_compile(lambda x: x * {4: 2}[x.shape[0]], dynamic=True)(torch.ones(5))


def test_einops() -> None:
    einops = pytest.importorskip("einops", reason="it is no dependency, and the programs above do what it does")
    program = lambda x: einops.rearrange(x, "b (h d) c -> b h (d c)", h=2)  # noqa: E731
    compiled = aot_compile(program, dynamic=True)
    for rows in (2, 3, 5):
        assert torch.equal(compiled(x := torch.rand(rows, 2 * rows, 3)), program(x))
    assert not compiled.recompiles


class Memo:
    """What programs keep by size, in each place where they do."""

    kept: ClassVar[dict[Any, Any]] = {}

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {}
        self.ordered: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self.lists: collections.defaultdict[Any, list[Any]] = collections.defaultdict(list)
        self.counts: collections.Counter[Any] = collections.Counter()
        self.met: set[Any] = set()
        self.last: Any = None

    def state(self) -> dict[str, Any]:
        return {**vars(self), "kept": dict(Memo.kept), "GLOBAL": dict(GLOBAL)}


GLOBAL: dict[Any, Any] = {}


def _of(table: Any, key: Any, x: Any) -> Any:
    if key not in table:
        table[key] = torch.arange(x.shape[0]).float()
    return table[key]


KEPT: dict[str, Any] = {
    "of a global": lambda m, x: x + _of(GLOBAL, tuple(x.shape), x),
    "of a class": lambda m, x: x + _of(Memo.kept, (x.shape[0], x.dtype), x),
    "of an object": lambda m, x: x + _of(m.table, x.shape[0], x),
    "by a shape": lambda m, x: x + _of(m.table, x.shape, x),
    "by two sizes": lambda m, x: x + _of(m.table, (x.shape[0], (x.numel(), "both")), x),
    "ordered": lambda m, x: x + _of(m.ordered, tuple(x.shape), x),
    "by default": lambda m, x: (m.lists[x.shape[0],].append(1), x * len(m.lists))[1],
    "counted": lambda m, x: (m.counts.update([(x.shape[0],)]), x * len(m.counts))[1],
    "met": lambda m, x: (m.met.add((x.shape[0], 1)), x * len(m.met))[1],
    "by a text": lambda m, x: x + _of(m.table, f"{tuple(x.shape)}", x),
    "the last one": lambda m, x: (setattr(m, "last", (x.shape[0], [x.numel()])), x * 2)[1],
    "by a condition": lambda m, x: x + _of(m.table, (x.shape[0] > 4, x.shape[0]), x),
}


@pytest.mark.every_case
@pytest.mark.parametrize("program", KEPT.values(), ids=KEPT)
def test_what_programs_keep_by_size(program: Any) -> None:
    states = []
    for compile_it in (False, True):
        GLOBAL.clear()
        Memo.kept.clear()
        memo = Memo()
        function = aot_compile(functools.partial(program, memo)) if compile_it else functools.partial(program, memo)
        states.append([])
        for rows in (4, 5, 6, 4, 5):
            states[-1].append(function(torch.ones(rows)).tolist())
            states[-1].append(repr(memo.state()))
    assert states[0] == states[1]


@functools.cache
def _table(n: int) -> torch.Tensor:
    return torch.arange(n) / n


OF_DATA: dict[str, Any] = {
    "a key": lambda x: x * {3: 2}.get(x[x > 0].shape[0], 5),
    "in a set": lambda x: x * (2 if x[x > 0].shape[0] in {3, 4} else 3),
    "a hash": lambda x: x * hash(x[x > 0].shape[0]),
    "a cached table": lambda x: x[x > 0] * _table(x[x > 0].shape[0]),
    "a cached table of an item": lambda x: x * _table(int((x > 0).sum().item())).sum(),
    "a row of a dict": lambda x: {1: x * 2, 2: x * 3}.get(x.nonzero().shape[0] - 2, x),
}


@pytest.mark.parametrize("name", OF_DATA)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_size_that_data_decides_is_a_key(name: str, dynamic: bool | None) -> None:
    program = OF_DATA[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for values in ([1.0, 2, 3, -1], [1.0, 2, 3, -1], [1.0, -2, 3, -1], [1.0, 2, 3, 5], [2.0, 2, 2, -2]):
        x = torch.tensor(values)
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("mark", [True, None])
def test_tables_of_the_library_have_no_symbols(mark: bool | None) -> None:
    """They outlive the trace, and a size would be found there as a number."""

    @functools.lru_cache
    def table(n: int) -> torch.Tensor:
        return torch.arange(n).float()

    def program(x: Any) -> Any:
        return ((x[None] * table(x.shape[-1]))[:, 1:] > 0.5).any()

    compiled = aot_compile(program, dynamic=mark)
    for rows in (7, 11, 13, 7):
        x = torch.rand(rows)
        assert torch.equal(compiled(x), program(x))
    numbers = {type(n) for spec in list(_interned.values()) for n in (*spec.size, *spec.stride, spec.offset)}
    assert numbers == {int}
