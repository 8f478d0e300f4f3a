"""Times first calls, second calls and hits over growing programs, and fits exponents."""

from __future__ import annotations

import cProfile
import gc
import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import optree
import torch
from functorch.compile import aot_function, aot_module, default_partition, nop
from torch import nn

import subclass_aot as sa
from benchmarks.growth.subjects import Program, Subject
from subclass_aot.testing.benchmark import Ratio

Call = Callable[..., Any]
OURS, DYNAMO, AOT = '"eager"', "`aot_eager`", "`aot_function`"
KINDS = ("first", "second", "hit")
SIZES = 4
"""How many sizes there are; each is twice the one before."""
SMALLER = 3
"""How many smaller ones there are for torch's sides, some of which take a time that is quadratic."""
ABOVE = 1.15
"""An exponent that is more, whatever the noise, is superlinear."""


@dataclass(frozen=True)
class Allowed:
    """What measuring may take.

    Args:
        seconds: For one subject; every size is measured once in any case.
        most_rounds: Rounds after which more would show nothing new.
        patience: Seconds of a first call of torch's from which on no larger size is tried.
    """

    seconds: float = 8.0
    most_rounds: int = 5
    patience: float = 0.8


@dataclass
class Measured:
    """What one side took.

    Attributes:
        seconds: By the kind of call and the size, one number for each round.
        calls: Calls of functions of Python and C, by the kind of call and the size.
        error: Why there is no more.
    """

    seconds: dict[str, dict[int, list[float]]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    calls: dict[str, dict[int, int]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    error: str = ""

    def median(self, kind: str, size: int) -> float:
        """Returns the median of the seconds of one size."""
        return statistics.median(self.seconds[kind][size])

    def exponent(self, kind: str) -> Ratio | None:
        """Returns the exponent over the upper half of the sizes: the median of the rounds, and the least and most."""
        upper = _upper(self.seconds[kind])
        rounds = min((len(self.seconds[kind][size]) for size in upper), default=0)
        if len(upper) < 2 or not rounds:
            return None
        found = sorted(fit({size: self.seconds[kind][size][i] for size in upper}) for i in range(rounds))
        return Ratio(fit({size: self.median(kind, size) for size in upper}), found[0], found[-1])

    def exponent_of_calls(self, kind: str) -> float | None:
        """Returns the exponent of calls over the sizes in the middle. It has no noise."""
        counted = self.calls[kind]
        return fit(counted) if len(counted) > 1 else None


def fit(values: Mapping[int, float]) -> float:
    """Returns the slope of a line through the logarithms of sizes and values.

    >>> round(fit({1: 3.0, 2: 12.0, 4: 48.0}), 6)
    2.0
    """
    xs, ys = [math.log(size) for size in values], [math.log(value) for value in values.values()]
    return statistics.linear_regression(xs, ys).slope


def sizes_of(subject: Subject, smaller: int = 0) -> tuple[int, ...]:
    """Returns the sizes of a subject, the largest at the end; so many smaller ones stand before."""
    return tuple(dict.fromkeys(max(1, subject.largest >> i) for i in reversed(range(SIZES + smaller))))


def measure(subject: Subject, allowed: Allowed) -> dict[str, Measured]:
    """Measures all sides of a subject in turns, and then counts the calls of ours."""
    sizes = sizes_of(subject)
    sides = {OURS: Measured()} | ({DYNAMO: Measured(), AOT: Measured()} if subject.with_torch else {})
    _warm_up(subject, sides)
    began = time.perf_counter()
    every = sizes_of(subject, SMALLER if len(sides) > 1 else 0)
    for done in range(allowed.most_rounds):
        if done and time.perf_counter() - began > allowed.seconds * done / (done + 1):
            break
        for size in every:
            program = subject.make(size)
            for side, measured in sides.items():
                if not measured.error and _is_worth_it(side, measured, size, sizes, allowed):
                    _once(side, program, size, measured)
    for size in sizes[-3:][
        :2
    ]:  # calls have no noise, so middle sizes say the same as the largest, in a third of the time
        _count(subject.make(size), size, sides[OURS])
    return sides


def _warm_up(subject: Subject, sides: Mapping[str, Measured]) -> None:
    """Runs the smallest of the sizes; a side that fails is left out."""
    program = subject.make(sizes_of(subject, SMALLER)[0])
    for side, measured in sides.items():
        try:
            _once(side, program, 0, Measured())
        except Exception as error:
            if side == OURS:
                raise
            # Whatever torch refuses, and however: the table says so.
            measured.error = type(error).__name__


def _is_worth_it(side: str, measured: Measured, size: int, sizes: Collection[int], allowed: Allowed) -> bool:
    """Returns whether a side is measured at a size: ours at all of `sizes`, others while they are fast enough."""
    if side == OURS:
        return size in sizes
    smaller = [each for each in measured.seconds["first"] if each < size]
    took = [measured.median(kind, max(smaller)) for kind in KINDS if smaller and max(smaller) in measured.seconds[kind]]
    return max(took, default=0) < allowed.patience


def _once(side: str, program: Program, size: int, measured: Measured) -> None:
    """Compiles a program anew, and times its calls."""
    torch.compiler.reset()
    compiled = _COMPILE[side](program.function)
    for kind, arguments in _calls(program):
        if kind == "second" and side == AOT:
            continue  # it has no guards, so it does not compile for other sizes
        _forget_gradients(program)
        gc.collect()
        took = min(_timed(compiled, arguments) for _ in range(3 if kind == "hit" else 1))
        measured.seconds[kind].setdefault(size, []).append(took)


def _count(program: Program, size: int, measured: Measured) -> None:
    compiled = _COMPILE[OURS](program.function)
    for kind, arguments in _calls(program):
        _forget_gradients(program)
        gc.collect()
        profile = cProfile.Profile()
        profile.runcall(step, compiled, arguments)
        measured.calls[kind][size] = sum(entry.callcount for entry in profile.getstats())


def _calls(program: Program) -> Iterator[tuple[str, tuple[Any, ...]]]:
    yield "first", program.arguments
    if program.others is not None:
        yield "second", program.others
    yield "hit", program.arguments


def _timed(compiled: Call, arguments: tuple[Any, ...]) -> float:
    start = time.process_time()
    step(compiled, arguments)
    return time.process_time() - start


def step(compiled: Call, arguments: tuple[Any, ...]) -> None:
    """Runs forward, and backward where there are gradients."""
    results = [x for x in optree.tree_leaves(compiled(*arguments)) if isinstance(x, torch.Tensor) and x.requires_grad]
    if results:
        torch.autograd.backward(results, [torch.ones_like(x) for x in results])


def _forget_gradients(program: Program) -> None:
    if isinstance(program.function, nn.Module):
        program.function.zero_grad()
    for x in optree.tree_leaves((program.arguments, program.others)):
        if isinstance(x, torch.Tensor):
            x.grad = None


def _by_aot_function(function: Call) -> Call:
    compile_it = aot_module if isinstance(function, nn.Module) else aot_function
    made: Call = compile_it(function, fw_compiler=nop, bw_compiler=nop, partition_fn=default_partition)
    return made


def _by_dynamo(function: Call) -> Call:
    return torch.compile(function, backend="aot_eager")


_COMPILE: dict[str, Callable[[Call], Call]] = {OURS: sa.aot_compile, DYNAMO: _by_dynamo, AOT: _by_aot_function}


def _upper(sizes: Iterable[int]) -> list[int]:
    """Returns the upper half of sizes of which each is twice the one before, both ends among them."""
    ordered = sorted(sizes)
    return ordered[len(ordered) // 2 - 1 :] if len(ordered) > 1 else ordered
