"""Whether a random program does behind `torch.compile` what it does in eager mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from tests.fuzz.oracle import LARGER, check_call
from tests.fuzz.programs import Program


def check_captured(program: Program, seeds: tuple[int, ...] = (1, 2), backend: str = "subclass_aot") -> bool:
    """Compiles `program` with `torch.compile`, and compares calls, and backward, with eager mode.

    What Dynamo captures wrong is not the backend's fault: a program with which `backend="eager"` fails, too, counts for
    nothing.

    Args:
        program: What to check.
        seeds: For the values of its arguments, and for random operators.
        backend: The backend.

    Returns:
        Whether the program counts.

    Raises:
        AssertionError: There is a difference that cannot be excused.
    """
    try:
        _check(program, seeds, backend)
    except AssertionError:
        try:
            _check(program, seeds, "eager")
        except AssertionError:
            return False
        raise
    return True


def excused(check: Callable[..., object], drawn: object) -> None:
    """Checks what is compiled by `torch.compile`, unless Dynamo captures it wrong for `backend="eager"`, too.

    Args:
        check: Takes what is drawn, and what compiles.
        drawn: What to check.

    Raises:
        Exception: What `check` raises for our backend alone.
    """
    try:
        check(drawn, captured)
    except Exception as error:
        pass_on_interruption(error)
        try:
            check(drawn, functools.partial(captured, backend="eager"))
        except Exception as error:
            pass_on_interruption(error)
            return
        raise


def _check(program: Program, seeds: tuple[int, ...], backend: str) -> None:
    compiled = _compiled(program, backend)
    for seed in seeds:
        check_call(program, seed, compiled)
    if program.symbolic:
        check_call(program.resized(LARGER), seeds[0], compiled)


def _compiled(program: Program, backend: str) -> Callable[..., Any]:
    """The function, compiled by itself: Dynamo keeps what it compiled by the code, for all backends."""
    function: Any = program.function
    function.__globals__["__name__"] = "__main__"  # a module that can be imported, as Dynamo does
    return captured(function, backend, program.symbolic or None)


def captured(function: Any, backend: str = "subclass_aot", dynamic: bool | None = None) -> Callable[..., Any]:
    """Compiles a function with `torch.compile`, and forgets all that it compiled before."""
    torch.compiler.reset()
    compiled: Callable[..., Any] = torch.compile(function, backend=backend, dynamic=dynamic)
    vars(function).pop("_is_torch_compile", None)  # which the wrapper of a module sets on the module
    return compiled
