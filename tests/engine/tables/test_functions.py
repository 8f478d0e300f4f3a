"""What functions hold."""

from __future__ import annotations

import functools
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.base.bytecode import only_appends
from subclass_aot.engine.tables import Table
from subclass_aot.engine.tables.functions import function_tables, is_library

STATE = [1]


def names_globals() -> Any:
    """Reads a global, a module of Python and a builtin, and makes a global that was not there."""
    global made_later
    made_later = math.floor(len(STATE))
    return made_later


def names_globals_inside() -> Any:
    return lambda: STATE[0]


def names_attributes_only(x: Any) -> Any:
    return x.absent_global


def reads_a_module() -> Any:
    return this_module.STATE, this_module.reads_a_module, torch.float32


this_module = sys.modules[__name__]


def closure() -> Callable[[], Any]:
    first, second = 1, [2]
    return lambda: (first, second)


def kinds(function: Any, module_name: str | None = None) -> list[str]:
    return [table.kind for table in function_tables(function, module_name)]


def test_a_function_holds_its_closure_and_its_attributes() -> None:
    assert kinds(closure()) == ["cells", "attributes"] and kinds(names_attributes_only) == ["attributes"]


def test_a_function_holds_its_default_arguments() -> None:
    def given(a: Any = 1, *, b: Any = STATE) -> None: ...

    slots, _ = function_tables(given, None)
    assert slots.read(given) == [("__defaults__", (1,)), ("__kwdefaults__", {"b": STATE})]
    slots.write(given, [("__defaults__", (2,)), ("__kwdefaults__", {"b": 3})])
    assert given.__defaults__ == (2,) and given.__kwdefaults__ == {"b": 3}
    assert kinds(torch.nn.functional.relu) == []


def test_the_function_below_a_decorator_is_found_in_the_closure() -> None:
    def decorated(function: Any) -> Any:
        return functools.wraps(function)(lambda: function())

    function = decorated(names_globals)
    function.calls = 0
    cells, attributes = function_tables(function, None)
    assert cells.read(function) == [("function", names_globals)] and attributes.read(function) == [("calls", 0)]


def test_globals_of_the_users_module_that_may_change() -> None:
    """Modules of Python stay what they are; what a function assigns need not be there before."""
    *_, table = function_tables(names_globals, __name__)
    assert (table.kind, set(table.only or ())) == ("globals", {"STATE", "made_later"})
    *_, table = function_tables(names_globals_inside, __name__)
    assert (table.kind, table.only) == ("globals", ("STATE",))


@pytest.mark.parametrize(("module_name", "found"), [(None, []), ("another", []), ("expecttest.made", ["globals"])])
def test_globals_of_installed_packages_are_left_out(module_name: str | None, found: list[str]) -> None:
    """All but those of the package that the compiled function is of."""
    import expecttest  # noqa: F401

    function = types.FunctionType(names_globals.__code__, {"__name__": "expecttest.made", "STATE": []})
    assert kinds(function, module_name) == ["attributes", *found]
    assert kinds(names_globals, module_name) == ["attributes", "globals"]


def test_globals_of_modules_that_a_function_names() -> None:
    """Those of a module of the user's, by the names of attributes in the function; of libraries none."""
    *_, table = function_tables(reads_a_module, None)
    assert (table.kind, table.module, table.only) == ("globals", "this_module", ("STATE", "reads_a_module"))
    assert (
        table.read(reads_a_module) == [("STATE", STATE), ("reads_a_module", reads_a_module)]
        and table.mapping(reads_a_module) is globals()
    )


def test_no_table_without_a_global() -> None:
    assert kinds(names_attributes_only, __name__) == ["attributes"]


class Layer(torch.nn.Module):
    """Has attributes of the names of globals, and a function inside that has local ones."""

    def __init__(self) -> None:
        super().__init__()
        self.STATE, self.unrelated = torch.ones(2), 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inside(unrelated: torch.Tensor) -> torch.Tensor:
            mask = unrelated + self.unrelated
            return mask * this_module.scale

        return inside(x).add(self.STATE)


unrelated: Any = torch.ones(7)
mask: Any = None
scale: Any = torch.full((2,), 3.0)


@pytest.mark.parametrize(
    "value", [torch.ones(8), torch.eye(2).to_sparse(), 3, [], TwoTensor(torch.ones(1), torch.ones(1)), None]
)
@pytest.mark.parametrize("name", ["unrelated", "mask", "STATE"])
@pytest.mark.parametrize("compile_", [aot_compile, lambda m: torch.compile(m, backend="subclass_aot")])
def test_globals_of_the_name_of_an_attribute_are_no_inputs(
    compile_: Callable[[Any], Any], name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2)
    compiled = compile_(Layer())
    assert compiled(x).equal(x * 9 + 1)
    monkeypatch.setitem(globals(), name, value)
    monkeypatch.setitem(globals(), "scale", torch.full((2,), 2.0))
    assert compiled(x).equal(x * 6 + 1)
    assert not getattr(compiled, "recompiles", [])


def test_functions_of_libraries() -> None:
    function: Any = torch.nn.functional.relu
    assert is_library(function) and kinds(function, function.__module__) == []
    assert not is_library(closure())  # type: ignore[arg-type]
    unknown = types.FunctionType(closure.__code__, {})
    assert unknown.__module__ in (None, "builtins") and is_library(unknown)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda box: lambda: box.append(1), True),
        (lambda box: lambda: [box.append(1), box.extend([2])], True),
        (lambda box: lambda: lambda: box.append(1), True),
        (lambda box: lambda: (box.append(1), len(box)), False),
        (lambda box: lambda: box.pop(), False),
        (lambda box: lambda: lambda: box[0], False),
        (lambda box: lambda: box, False),
    ],
)
def test_who_only_appends(make: Callable[[list[Any]], Any], found: bool) -> None:
    assert only_appends(make([]).__code__, "box") is found


def appends_to_a_global() -> None:
    STATE.append(1)


def test_who_only_appends_to_a_global() -> None:
    assert only_appends(appends_to_a_global.__code__, "STATE")
    assert not only_appends(names_globals.__code__, "STATE")


def assigns(box: list[Any]) -> Any:
    def function() -> None:
        nonlocal box
        box.append(1)
        box = []

    return function


def test_another_list_in_its_place_is_more_than_an_append() -> None:
    assert not only_appends(assigns([]).__code__, "box")


def test_functions_of_other_files() -> None:
    there = Table("globals")
    assert there.is_of_another_file(closure, functools.reduce) is False, "it is written in C"
    assert there.is_of_another_file(closure, functools.wraps)
    assert not there.is_of_another_file(names_globals, closure) and not there.is_of_another_file(closure, STATE)
