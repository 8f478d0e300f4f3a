"""The user's lines are found below those of torch and of this library."""

from __future__ import annotations

import ast
import bdb
import functools
import signal
import traceback
import warnings
from pathlib import Path
from types import FunctionType
from typing import Any

import optree
import pytest
import torch

from subclass_aot import aot_compile, tensors
from subclass_aot.base import _stack
from subclass_aot.kit import wrapper

HERE = str(Path(__file__))


def fails() -> None:
    torch.ones(2).view(3)  # this line


def raised(function: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: B017
        function()
    return caught.value


def test_the_line_that_runs() -> None:
    found = _stack.user_line()  # this one
    assert found.startswith(f"{HERE}:") and found.endswith(": found = _stack.user_line()  # this one")


def test_an_instruction_without_a_line_has_that_of_its_function() -> None:
    """As a handler of signals may find the frame that it interrupts."""
    code = compile("def program(inner):\n    return inner()", "a_program.py", "exec").co_consts[0]
    program: Any = FunctionType(code.replace(co_linetable=b""), {})
    assert program(lambda: _stack.user_frames(2))[1] == ("a_program.py", 1, "program")
    assert program(_stack.user_line) == "a_program.py:1: "
    compiled = aot_compile(lambda x: x * 2)
    assert program(lambda: compiled(torch.ones(2))).tolist() == [2, 2]


def test_libraries_are_left_out() -> None:
    found: list[Any] = []
    optree.tree_map(lambda x: found.append(_stack.user_frames()), [1])
    assert [name for _, _, name in found[0]][:2] == ["<lambda>", "test_libraries_are_left_out"]
    assert not any("optree" in file for file, _, _ in found[0])
    assert len(_stack.user_frames(limit=1)) == 1


def test_the_line_of_an_error() -> None:
    error = raised(fails)
    assert _stack.user_line_of(error).endswith(": torch.ones(2).view(3)  # this line")
    assert _stack.user_line_in(traceback.extract_tb(error.__traceback__)) == _stack.user_line_of(error)


def test_who_raised_it() -> None:
    assert _stack.is_raised_by_user(raised(fails))  # `view` is a function of C++, without a frame
    assert not _stack.is_raised_by_user(raised(lambda: torch.nn.Linear(2, 3)(torch.ones(2, 4))))
    assert not _stack.is_raised_by_user(ValueError("never raised"))


def test_no_line() -> None:
    assert _stack.user_line_in([]) == "(no line of yours is on the stack)"


def test_a_warning_stands_at_the_line_of_the_user() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optree.tree_map(lambda x: _stack.warn("careful"), [1])
    assert [(str(w.message), w.filename) for w in caught] == [("careful", HERE)]


def test_frames_are_shown_as_python_does() -> None:
    here = _stack.user_frames(limit=1)[0]
    shown = _stack.format_frames((here, (HERE, fails.__code__.co_firstlineno + 1, "fails")))
    first, second, third, fourth = shown.splitlines()
    assert first == f'  File "{HERE}", line {fails.__code__.co_firstlineno + 1}, in fails'
    assert second == "    torch.ones(2).view(3)  # this line"
    assert third.endswith("in test_frames_are_shown_as_python_does") and fourth.strip().startswith("here = ")


@pytest.mark.parametrize(
    ("filename", "mine"),
    [
        (__file__, True),
        (tensors.__file__, True),  # written as a user writes
        (wrapper.__file__, False),
        (torch.__file__, False),
        ("<string>", False),
        ("<stdin>", True),
    ],
)
def test_whose_file_it_is(filename: str, mine: bool) -> None:
    assert _stack.is_user_file(filename) is mine


def test_lines_of_what_was_captured_before() -> None:
    trace = f'  File "{__file__}", line 3, in outer\n    x\n  File "{torch.__file__}", line 9, in torchs\n    y\n'
    with _stack.captured_at(trace + f'  File "{__file__}", line 1, in inner\n    z'):
        assert _stack.user_frames() == ((__file__, 1, "inner"), (__file__, 3, "outer"))
        assert _stack.user_frames(1) == ((__file__, 1, "inner"),) and _stack.user_line().startswith(f"{__file__}:1:")
    assert _stack.user_frames()[0][2] == "test_lines_of_what_was_captured_before"


def _handle(number: int, frame: Any) -> None:
    raise TimeoutError("the alarm")


def _handle_more(more: str, number: int, frame: Any) -> None:
    raise RuntimeError("the alarm")


class _Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise ValueError("the alarm")

    def method(self, number: int, frame: Any) -> None:
        raise ValueError("the alarm")


@pytest.mark.every_case
@pytest.mark.parametrize("handler", [_handle, functools.partial(_handle_more, "more"), _Handler(), _Handler().method])
def test_what_a_handler_of_signals_raises_is_passed_on(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        error = raised(lambda: signal.raise_signal(signal.SIGUSR1))
        with pytest.raises(type(error), match="the alarm") as passed:
            _stack.pass_on_interruption(error)
        assert passed.value is error
        _stack.pass_on_interruption(raised(fails))
        _stack.pass_on_interruption(type(error)("of the same class"))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_a_debugger_raises_that_is_told_to_quit() -> None:
    with pytest.raises(bdb.BdbQuit):
        _stack.pass_on_interruption(bdb.BdbQuit())


def test_all_errors_are_caught_in_one_way() -> None:
    """Whoever catches `Exception` lets go of what a handler of signals raised, and says whose errors these are."""
    for path in sorted(Path(_stack.__file__).parents[1].rglob("*.py")):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and ast.unparse(node.type or ast.Name("all")) in (
                "Exception",
                "all",
            ):
                assert ast.unparse(node.body[0]) == f"pass_on_interruption({node.name})", f"{path}:{node.lineno}"
                assert "testing" in path.parts or "  # " in lines[node.lineno - 1], f"{path}:{node.lineno}"


def test_a_frame_whose_code_has_no_hash() -> None:
    """Dynamo makes such code."""

    def raises() -> None:
        raise ValueError("its own")

    raises.__code__ = raises.__code__.replace(co_consts=(*raises.__code__.co_consts, {}))
    with pytest.raises(ValueError, match="its own") as caught:
        raises()
    _stack.pass_on_interruption(caught.value)


def test_an_error_that_came_through_no_line_of_the_users_has_the_running_one() -> None:
    """As one that autograd raises in a gradient."""
    assert "test_stack.py:" in _stack.user_line_of(ValueError())
