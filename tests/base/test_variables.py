"""The variables of functions that run, which a look at them does not keep."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from subclass_aot.base.variables import variables_of


class Object:
    pass


def test_a_look_keeps_nothing() -> None:
    kept = Object()
    seen = weakref.ref(kept)
    assert variables_of(sys._getframe())["kept"] is kept
    del kept
    assert seen() is None


def test_what_a_program_has_of_them_stays() -> None:
    kept = Object()
    variables = locals()
    assert variables_of(sys._getframe())["kept"] is variables["kept"] is kept


def test_class_bodies_and_modules_keep_theirs() -> None:
    class Made:
        value = 1
        found = variables_of(sys._getframe())

    assert Made.value == 1 and Made.found["value"] == 1
    names: dict[str, Any] = {"variables_of": variables_of, "sys": sys, "__name__": "made"}
    exec("value = 2\nfound = variables_of(sys._getframe())", names)
    assert names["value"] == names["found"]["value"] == 2


def test_where_a_debugger_reads_them_they_stay() -> None:
    value, before = 3, sys.gettrace()
    sys.settrace(lambda frame, event, arg: None)
    try:
        assert variables_of(sys._getframe())["value"] == value == 3
    finally:
        sys.settrace(before)
    assert value == 3
