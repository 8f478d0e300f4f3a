"""What takes the place of an iterator while a function is traced takes no step, and is taken for the iterator."""

from __future__ import annotations

import io
import itertools
import queue
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from subclass_aot import aot_compile
from subclass_aot.engine.objects import NotStepped
from subclass_aot.engine.objects.stepped import stand_in_for
from subclass_aot.errors import OnlyInEagerModeError, TraceError

x = torch.ones(2)


@pytest.mark.parametrize(
    ("value", "found"),
    [(iter([]), True), (itertools.count(), True), ((i for i in ()), True), ([], False), (range(2), False),
     (io.StringIO(), False), (NotStepped(iter([]), "x"), False), ({}.values(), True), ({}, False),
     (queue.Queue(), True), (DataLoader([]), True), (frozenset({1}), False), (sys.stdout, False)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_an_iterator(value: object, found: bool) -> None:
    stand_in = stand_in_for(value, "held")
    assert (stand_in is not None) is found
    if stand_in is not None:
        assert isinstance(stand_in, type(value)) and stand_in.iterator is value and stand_in.refusal is None


def test_a_stand_in_takes_no_step() -> None:
    iterator = iter([1])
    stand_in = NotStepped(iterator, "held.batches")
    assert iter(stand_in) is stand_in
    with pytest.raises(TraceError, match=r"^held\.batches: .* of class list_iterator"):
        next(stand_in)
    assert stand_in.iterator is iterator and next(iterator) == 1


def endless() -> Iterator[int]:
    yield from itertools.count()


@pytest.mark.parametrize(
    "make",
    [itertools.count, lambda: iter([1.0, 2.0]), lambda: iter([x, x * 2]), endless, lambda: (i for i in range(3)),
     lambda: zip([1.0], [2.0], strict=True), lambda: map(float, range(3)), lambda: enumerate([x])],
)  # fmt: skip
def test_a_step_of_an_iterator_is_refused(make: Callable[[], Any]) -> None:
    held = make()

    class Loop:
        def __init__(self) -> None:
            self.batches = make()

        def step(self, x: Any) -> Any:
            return x, next(self.batches)

    loop = Loop()
    for path, program, args in [
        ("held", lambda x: (x, next(held)), ()),
        (r"self\.batches", loop.step, ()),
        (r"args\[1\]", lambda x, it: [x for _ in it], (make(),)),
        (r"args\[1\]\[0\]", lambda x, it: (x, list(it[0])), ((make(), 1),)),
    ]:
        with pytest.raises(TraceError, match=f"^{path}: .*iterator"):
            aot_compile(program, values="refuse")(x, *args)
    next(held), next(loop.batches)  # they are where they were, and back in their places


def test_an_iterator_that_is_not_stepped_may_be_held() -> None:
    held = types.SimpleNamespace(batches=iter([1]), log=io.StringIO(), scale=2.0)

    def program(x: Any) -> Any:
        held.log.write("a line")
        return x * held.scale, held.batches

    compiled = aot_compile(program)
    out, batches = compiled(x)
    assert out.tolist() == [2, 2] and batches is held.batches and type(held.log) is io.StringIO


def test_attributes_are_those_of_the_iterator() -> None:
    generator = (i for i in range(3))
    stand_in: Any = stand_in_for(generator, "held")
    assert stand_in.gi_running is False and not hasattr(stand_in, "keys")
    with pytest.raises(OnlyInEagerModeError, match="class generator") as raised:
        stand_in.send(None)
    assert stand_in.refusal is raised.value and next(generator) == 0


def test_views_and_loaders_show_nothing_of_what_is_in_them() -> None:
    view, loader = ({"a": 1}.keys(), DataLoader([1, 2, 3]))
    asked: list[tuple[object, Callable[[Any], Any]]] = [
        (view, len), (view, iter), (view, reversed), (view, lambda v: "a" in v), (view, list), (loader, iter),
    ]  # fmt: skip
    for value, ask in asked:
        with pytest.raises(OnlyInEagerModeError):
            ask(stand_in_for(value, "held"))
    stand_in: Any = stand_in_for(loader, "held")
    assert len(stand_in) == 3 and stand_in.batch_size == 1
