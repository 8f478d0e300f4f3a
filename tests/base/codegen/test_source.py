"""The source builder: names, constants, text and errors of generated functions."""

from __future__ import annotations

import gc
import inspect
import linecache
import traceback

import pytest

from subclass_aot.base.codegen import GuardedSource, Source, identifier


def test_a_function_runs_and_shows_its_source() -> None:
    source = Source("add one", "x", 'Says """x""" plus one.')
    one = source.const(1, "one")
    with source.block("if x is None:"):
        source.line(f"return {one}")
    source.line(f"return x + {one}")
    function = source.build()
    assert (function(None), function(2)) == (1, 3)
    assert function.__name__ == "add_one"
    assert function.__doc__ == "Says '''x''' plus one."
    assert inspect.getsource(function) == function.__source__ == str(source)  # type: ignore[attr-defined]


def test_an_error_shows_the_generated_line() -> None:
    source = Source("fail", "x")
    source.line("return x.no_such_attribute")
    with pytest.raises(AttributeError) as caught:
        source.build()(1)
    assert "return x.no_such_attribute" in "".join(traceback.format_tb(caught.value.__traceback__))


def test_an_empty_function_returns_none() -> None:
    assert Source("nothing", "").build()() is None
    assert Source("nothing", "", "With a docstring.").build()() is None


def test_the_text_leaves_linecache_with_the_function() -> None:
    function = Source("short_lived", "").build()
    filename = function.__code__.co_filename
    assert filename in linecache.cache
    del function
    gc.collect()
    assert filename not in linecache.cache


def test_names_are_fresh() -> None:
    source = Source("f", "x, y=1")
    names = [source.fresh("x"), source.fresh("x"), source.fresh("f"), source.fresh("z"), source.fresh("z.z"), "x", "y"]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_names_do_not_hide_builtins() -> None:
    source = Source("f", "")
    assert source.fresh("len") != "len"
    assert source.const(int, "int") == "int"  # the builtin itself is its own name
    impostor = type("int", (), {})
    source.line(f"return {source.const(impostor, 'int')}, int")
    assert source.build()() == (impostor, int)


def test_one_name_per_object() -> None:
    source = Source("f", "")
    first, second = [1], [1]
    assert source.const(first, "a") == source.const(first, "b")
    assert source.const(first, "a") != source.const(second, "a")


def test_names_cost_the_same_each() -> None:
    source = Source("f", "")
    names = {source.fresh("leaf") for _ in range(20_000)}  # seconds, were each name searched from the start
    assert len(names) == 20_000


@pytest.mark.parametrize(("text", "name"), [("", "_"), ("1a", "_1a"), ("a-b", "a_b"), ("for", "for_")])
def test_identifiers(text: str, name: str) -> None:
    assert identifier(text) == name


def test_the_lines_in_linecache_are_those_of_the_text() -> None:
    source = Source("f", "x", "Doc.")
    source.line("y = x + 1")
    source.line("return 1 / y")
    function = source.build()
    filename = function.__code__.co_filename
    expected = str(source).splitlines(keepends=True)
    lines = linecache.getlines(filename)
    assert [*lines] == lines[:] == expected and len(lines) == 4
    assert [linecache.getline(filename, i) for i in range(6)] == ["", *expected, ""]
    linecache.checkcache()
    assert inspect.getsource(function) == str(source)
    with pytest.raises(ZeroDivisionError) as caught:
        function(-1)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "return 1 / y"


def test_conditions_that_somebody_else_sees_to_are_left_out() -> None:
    source = GuardedSource("root", "x", "The square root.", (None, "None"))
    with source.trusted():
        source.refuse_if("x < 0")
        source.line("y = x")
    source.refuse_if("y == 9")
    source.line("return -y")
    root = source.build()
    assert (root(-4), root(9)) == (4, None)
