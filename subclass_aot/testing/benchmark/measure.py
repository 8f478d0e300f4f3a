"""Timing several ways to do one thing, in turns, so that a slow moment of the machine hits all of them."""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from subclass_aot.base.put_back import PutBack


@dataclass(frozen=True)
class Budget:
    """The time that one comparison may take.

    Args:
        seconds: For all sides together; a comparison takes longer only where `fewest_rounds` of it do.
        block_us: How long one uninterrupted block of calls of one side lasts at least.
        fewest_rounds: Rounds that are always made.
        most_rounds: Rounds after which more would show nothing new.
    """

    seconds: float = 0.6
    block_us: float = 1000.0
    fewest_rounds: int = 7
    most_rounds: int = 31


QUICK = Budget(seconds=0.05, block_us=200.0, fewest_rounds=3, most_rounds=7)


@dataclass(frozen=True)
class Side:
    """One way to do the thing.

    Args:
        function: What is called.
        arguments: What it is called with. They are passed as they are: no lambda stands in between and is timed too.
        units: How many of something one call handles; times are given per unit.
    """

    function: Callable[..., object]
    arguments: tuple[Any, ...] = ()
    units: int = 1

    def timer(self) -> timeit.Timer:
        """Returns a timer of one call.

        It is the standard library's: torch's `Timer` makes two calls more before every block, which would take most
        of the time where a call takes seconds, and it cannot read the processor's clock.
        """
        names = {f"argument_{i}": argument for i, argument in enumerate(self.arguments)}
        known = {"function": self.function, **names}
        return timeit.Timer(f"function({', '.join(names)})", timer=time.process_time, globals=known)


@dataclass(frozen=True)
class Ratio:
    """The speed of one side relative to another: the median of the rounds and their quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Microseconds per unit of each side, one number for each round.

    >>> fast_and_slow = Comparison({"fast": (1.0, 2.0, 1.0), "slow": (3.0, 6.0, 4.0)})
    >>> fast_and_slow.ratio("fast", "slow")
    Ratio(median=3.0, low=3.0, high=4.0)
    """

    microseconds: Mapping[str, tuple[float, ...]]

    def median_us(self, side: str) -> float:
        """Returns the median time of a side."""
        return statistics.median(self.microseconds[side])

    def per(self, units: int) -> Comparison:
        """Returns the same times, for each of so many things that a call handles."""
        return Comparison({side: tuple(us / units for us in times) for side, times in self.microseconds.items()})

    def ratio(self, ours: str, other: str) -> Ratio:
        """Returns how many times as fast `ours` is as `other`; each round gives one ratio."""
        rounds = zip(self.microseconds[ours], self.microseconds[other], strict=True)
        ratios = sorted(theirs / mine for mine, theirs in rounds)
        quarter = len(ratios) // 4
        return Ratio(statistics.median(ratios), ratios[quarter], ratios[-1 - quarter])


def compare(sides: Mapping[str, Side], budget: Budget) -> Comparison:
    """Times all sides in turns.

    In each round every side runs one block of calls, long enough for the clock. The order is drawn anew for each
    round, and a call that is not counted goes before each block, so that no side gains by who was before it. The
    garbage collector runs between rounds only. Time is processor time of this process, so that other programs on the
    machine change it little.

    Args:
        sides: What to time, by name.
        budget: How long it may take.

    Returns:
        The times.
    """
    timers = {name: side.timer() for name, side in sides.items()}
    calls = {name: _calls_per_block(timer, budget) for name, timer in timers.items()}
    short = {name for name, timer in timers.items() if timer.timeit(1) * 1e6 < _SLOW_US}
    microseconds: dict[str, list[float]] = {name: [] for name in sides}
    draw, order, left_us = random.Random(0), list(sides), budget.seconds * 1e6
    for done in range(budget.most_rounds):
        if left_us <= 0 and done >= budget.fewest_rounds:
            break
        draw.shuffle(order)
        with _no_collector():
            for name in order:
                if name in short:
                    timers[name].timeit(1)
                block_us = timers[name].timeit(calls[name]) * 1e6
                left_us -= block_us
                microseconds[name].append(block_us / calls[name] / sides[name].units)
    return Comparison({name: tuple(times) for name, times in microseconds.items()})


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    with PutBack(gc.enable):
        gc.disable()
        yield


def _calls_per_block(timer: timeit.Timer, budget: Budget) -> int:
    """Warms up, then finds out how many calls fill a block."""
    first_us = timer.timeit(1) * 1e6
    timer.timeit(_WARM_UP if first_us < _SLOW_US else 1)
    calls = 1
    while (taken_us := timer.timeit(calls) * 1e6) < budget.block_us / 2:
        calls *= 2
    return max(1, round(calls * budget.block_us / taken_us))


_WARM_UP = 20
"""Calls after which CPython has specialized the instructions of a function."""
_SLOW_US = 20_000.0
"""A call that takes longer is warmed up once, and not before each block."""
