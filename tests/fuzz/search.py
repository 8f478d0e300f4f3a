"""Draws programs until the time is over, or one is wrong."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.errors import DifferenceError
from subclass_aot.testing.check import check_compiled
from tests.fuzz.captured import check_captured, excused
from tests.fuzz.draws import DrawnNumbers, check_numbers, numbers
from tests.fuzz.effects import DrawnEffects, check_effects, effects
from tests.fuzz.handlers import DrawnHandler, check_handler, handlers
from tests.fuzz.last_steps import last_steps
from tests.fuzz.lasting import DrawnLasting, check_lasting, lasting
from tests.fuzz.losses import DrawnLosses, check_losses, losses
from tests.fuzz.misuse import DrawnMisuse, check_misuse, misuses
from tests.fuzz.optimizers import DrawnOptimizer, check_optimizer, optimizers
from tests.fuzz.oracle import check_blocks, check_program
from tests.fuzz.passed import DrawnPassed, check_passed, passed
from tests.fuzz.programs import Program, mode_of, programs
from tests.fuzz.raising import DrawnRaise, check_raising, raises
from tests.fuzz.state import DrawnState, check_state, states
from tests.fuzz.values import DrawnValues, check_values, values

_PROGRAMS_PER_ROUND = 100  # of one seed for hypothesis; few, so that the end is near when the time is over

Drawn = (
    Program
    | DrawnOptimizer
    | DrawnState
    | DrawnEffects
    | DrawnValues
    | DrawnNumbers
    | DrawnHandler
    | DrawnLosses
    | DrawnMisuse
    | DrawnLasting
    | DrawnPassed
)


class _Other(NamedTuple):
    """What is drawn beside programs.

    Attributes:
        check: Compares one with eager mode.
        drawn: Draws one.
        lines: What the lines that it prints are.
        is_for_dynamo: Whether it is compared behind `torch.compile`, too.
    """

    check: Callable[[Any], object]
    drawn: Callable[[], st.SearchStrategy[Any]]
    lines: str
    is_for_dynamo: bool = True


_IN_WORLD = "Each line is one of `forward`, in the module that `tests/fuzz/state.py` has as `WORLD`."
_OTHERS: dict[type, _Other] = {
    DrawnOptimizer: _Other(
        check_optimizer, optimizers, "Each line is done in `step`, for each parameter `p` with its gradient `g`."
    ),
    DrawnState: _Other(check_state, states, _IN_WORLD),
    DrawnRaise: _Other(check_raising, raises, _IN_WORLD),
    DrawnEffects: _Other(check_effects, effects, "Each step is one of `_run` in `tests/fuzz/effects.py`."),
    DrawnValues: _Other(
        check_values, values, "Each line is one of a program of `x`, `v` and `held`, in `tests/fuzz/values.py`.", False
    ),  # Dynamo has its own texts
    DrawnHandler: _Other(check_handler, handlers, _IN_WORLD, False),  # which compiles by `aot_compile`
    DrawnLosses: _Other(check_losses, losses, "Each line is one of a program of `v`, in `tests/fuzz/losses.py`."),
    DrawnLasting: _Other(check_lasting, lasting, "Each step is one of `STEPS` in `tests/fuzz/lasting.py`.", False),
    DrawnMisuse: _Other(
        check_misuse, misuses, "A program catches what this raises.", False
    ),  # Dynamo has its own errors
    DrawnPassed: _Other(
        check_passed, passed, "Each line is one of a program of the names in `tests/fuzz/passed.py`.", False
    ),  # Dynamo has its own reads of what is passed
    DrawnNumbers: _Other(check_numbers, numbers, "Each line is one of `_function` in `tests/fuzz/draws.py`.", False),
}


def check_drawn(drawn: Drawn, torch_compile: bool = False) -> None:
    """Compares a program, or another thing that was drawn, with eager mode.

    Args:
        drawn: What was drawn.
        torch_compile: Whether `torch.compile` compiles it.

    Raises:
        AssertionError: There is a difference.
    """
    other = _OTHERS.get(type(drawn))
    if other is not None:
        if not torch_compile:
            other.check(drawn)
        elif other.is_for_dynamo:
            excused(other.check, drawn)
    elif torch_compile:
        check_captured(drawn)
    elif drawn.blocks:
        check_blocks(drawn)
    else:
        check_program(drawn)


def fuzz(minutes: float, seed: int, check: Callable[[Drawn], object] = check_drawn) -> int:
    """Draws and checks programs until the time is over, or one is wrong; that one is made small and printed.

    Args:
        minutes: How long.
        seed: The same programs come in the same order for the same seed.
        check: Raises for a program that is wrong.

    Returns:
        0, or 1 if a program was wrong.
    """
    begin, said, count = time.monotonic(), 0, 0
    latest: list[Drawn] = []
    rounds = random.Random(seed)

    def body(program: Drawn) -> None:
        nonlocal count
        latest[:] = [program]
        count += 1
        check(program)

    others = (other.drawn() for other in _OTHERS.values())
    strategy = hypothesis.given(st.one_of(*[programs(everything=True)] * 6, last_steps(everything=True), *others))
    options = hypothesis.settings(
        max_examples=_PROGRAMS_PER_ROUND,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    passed = 0.0
    while not count or passed < minutes:
        try:
            hypothesis.seed(rounds.getrandbits(32))(options(strategy(body)))()
        except Exception as error:
            pass_on_interruption(error)
            print(f"A wrong program, after {count} (seed {seed}):\n\n{latest[0]}\n")
            traceback.print_exception(error)
            print(_as_script(latest[0]), flush=True)
            return 1
        passed = (time.monotonic() - begin) / 60
        if passed >= said + 1:
            said = int(passed)
            print(f"{said} minutes: {count} programs", flush=True)
    print(f"{count} programs, none wrong (seed {seed})", flush=True)
    return 0


def _as_script(program: Drawn) -> str:
    """Returns the program as one that can be pasted somewhere else, as small as it can be."""
    if type(program) in _OTHERS:
        return _OTHERS[type(program)].lines
    for seed in (1, 2):
        try:
            with mode_of(program):
                check_compiled(program.function, program.make_arguments(seed)[0])
        except DifferenceError as error:
            return str(error)
        except Exception as error:
            pass_on_interruption(error)
            return f"check_compiled cannot show it: {error}"
    return "check_compiled sees no difference: it depends on what is done with the results."
