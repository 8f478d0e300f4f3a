"""Blocks put back what they set, whatever moment a signal comes at."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from subclass_aot.base import put_back
from subclass_aot.base.put_back import PutBack, attributes_put_back


class Alarm(Exception):
    """What the handler of a signal raises."""


@contextmanager
def alarm_at(line: Callable[[types.FrameType], bool]) -> Iterator[None]:
    """Raises once, before a line of `put_back.py` or of this file."""

    def trace(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename in (put_back.__file__, __file__) and event == "line" and line(frame):
            sys.settrace(None)
            raise Alarm
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def first_exit() -> Callable[[types.FrameType], bool]:
    return lambda frame: frame.f_code.co_name == "__exit__"


def nested(said: list[str]) -> None:
    with PutBack(lambda: said.append("outer")), PutBack(lambda: said.append("inner")):
        said.append("body")


def test_without_a_signal_the_innermost_comes_first() -> None:
    said: list[str] = []
    nested(said)
    assert said == ["body", "inner", "outer"]
    assert not put_back._entered.stack


def test_a_signal_before_the_end_of_the_inner_block() -> None:
    said: list[str] = []
    with pytest.raises(Alarm), alarm_at(first_exit()):
        nested(said)
    assert said == ["body", "inner", "outer"]
    assert not put_back._entered.stack


@pytest.mark.every_case
@pytest.mark.parametrize("number", range(40))
def test_a_signal_at_any_line(number: int) -> None:
    """What was set is put back, and blocks around are left in order."""
    holder = types.SimpleNamespace(a=1, b=2)
    lines = iter(range(1000))

    def program() -> None:
        with PutBack(attributes_put_back([(holder, "a"), (holder, "c")])):
            holder.a, holder.c = 3, 4
            with PutBack(attributes_put_back([(holder, "a"), (holder, "b")])):
                holder.a, holder.b = 5, 6

    with alarm_at(lambda frame: frame.f_code.co_name != "alarm_at" and next(lines) == number):
        try:
            with PutBack(lambda: None):
                program()
        except Alarm:
            pass
    assert vars(holder) == {"a": 1, "b": 2}
    assert not put_back._entered.stack


def test_a_signal_in_what_puts_back() -> None:
    said: list[str] = []

    def interrupted() -> None:
        said.append("begun")
        if len(said) == 1:
            raise Alarm
        said.append("done")

    with pytest.raises(Alarm), PutBack(lambda: said.append("outer")), PutBack(interrupted):
        pass
    assert said == ["begun", "begun", "done", "outer"]


@contextmanager
def generated(said: list[str]) -> Iterator[None]:
    with PutBack(lambda: said.append("generated")):
        yield


def test_a_generator_that_is_freed_later_leaves_other_blocks_alone() -> None:
    """As after a signal before the first line of contextlib's `__exit__`: nobody leaves the block of the generator."""
    said: list[str] = []
    block = generated(said)
    block.__enter__()
    with PutBack(lambda: said.append("another")):
        del block
        gc.collect()
        assert said == ["generated"]
    assert said == ["generated", "another"]
    assert not put_back._entered.stack


def test_a_generator_whose_block_was_put_back_puts_nothing_back_again() -> None:
    said: list[str] = []
    with PutBack(lambda: said.append("outer")):
        block = generated(said)
        block.__enter__()
    assert said == ["generated", "outer"]
    del block
    gc.collect()
    assert said == ["generated", "outer"]


def test_attributes_that_were_not_there_are_deleted() -> None:
    class Base:
        value = 1

    class Derived(Base):
        pass

    with PutBack(attributes_put_back([(Derived, "value"), (Derived, "other")])):
        Derived.value, Derived.other = 2, 3  # type: ignore[attr-defined]
    assert Derived.value == 1 and not {"value", "other"} & vars(Derived).keys()
