"""Objects that hold others where no dict has them: who registers a view has them read, compared, written and traced."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch

import subclass_aot as sa
from subclass_aot.engine.tables import Table, classes
from subclass_aot.engine.tables.holders import HOLDERS, is_holder, view_of
from subclass_aot.errors import LastingChangeError

CONTENTS: WeakKeyDictionary[Box, dict[str, Any]] = WeakKeyDictionary()


class Box:
    """Holds things as an object of C++ does."""

    __slots__ = ("__weakref__",)

    def __init__(self, **contents: Any) -> None:
        CONTENTS[self] = contents

    def read(self, name: str) -> Any:
        return CONTENTS[self][name]

    def put(self, name: str, value: Any) -> None:
        CONTENTS[self][name] = value


class View(MutableMapping[str, Any]):
    """What a box holds; it grows, and does not shrink."""

    def __init__(self, box: Box) -> None:
        self.contents = CONTENTS[box]

    def __getitem__(self, name: str) -> Any:
        return self.contents[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.contents[name] = value

    def __delitem__(self, name: str) -> None:
        raise LastingChangeError(f"{name} cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOLDERS, f"{Box.__module__}.{Box.__qualname__}", View)
    monkeypatch.setattr(classes, "_tables_of", {})


def test_views() -> None:
    box = Box(n=1)
    assert is_holder(Box) and not is_holder(dict) and dict(view_of(box)) == {"n": 1}
    table = Table("held")
    assert table.read(box) == [("n", 1)] and table.watched(box) == (Table.UNSEEN,)
    table.write(box, [("n", 2), ("more", None)])
    assert CONTENTS[box] == {"n": 2, "more": None}
    table.write(box, [("n", 3)])  # what cannot be removed stays
    assert CONTENTS[box] == {"n": 3, "more": None} and table.path("box", "n") == "box.n"


def program(box: Box, x: Any) -> Any:
    box.put("last", x * 3)
    return x * box.read("scale")


def test_a_call_reads_and_writes_what_it_holds() -> None:
    box, x = Box(scale=2.0, last=None), torch.ones(2)
    compiled = sa.aot_compile(program)
    for scale in (2.0, 2.0, torch.full((2,), 5.0), torch.full((2,), 7.0)):
        box.put("scale", scale)
        box.put("last", None)
        assert torch.equal(compiled(box, x), x * scale) and torch.equal(box.read("last"), x * 3)
    assert len(compiled.recompiles) == 1 and "box.scale" not in compiled.recompiles[0].split("args[0]")[0]


def test_a_trace_that_fails_leaves_it_as_it_was() -> None:
    box = Box(scale=2.0, last=None)

    def fails(box: Box, x: Any) -> Any:
        box.put("last", x * 3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sa.aot_compile(fails)(box, torch.ones(2))
    assert box.read("scale") == 2.0 and type(box.read("last")) in (type(None), torch.Tensor)


SEEN: ContextVar[object] = ContextVar("SEEN")


def test_a_trace_runs_in_a_copy_of_the_context() -> None:
    """What nobody has a view of is not left to the program in the form that it has in a trace."""
    holder: Any = SEEN

    def sets(x: Any) -> Any:
        getattr(holder, "set")(x.shape)  # noqa: B009
        return x * 2

    compiled = sa.aot_compile(sets, dynamic=True)
    compiled(torch.ones(3))
    assert SEEN.get(None) is None or type(SEEN.get()[0]) is int  # type: ignore[index]
