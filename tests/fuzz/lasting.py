"""Random programs that build, freeze, copy, step and read settings, between calls of all kinds, beside eager mode."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

import subclass_aot as sa
from tests.by_door import Door, check


def _numbers() -> Iterator[float]:
    number = 1.0
    while True:
        yield number
        number = number % 3 + 1


def _build(m: Any, x: Any) -> Any:
    if not hasattr(m, "scale"):
        m.scale = nn.Parameter(torch.ones(x.shape[-1]) * 2)
    return x * m.scale


def _wrap(m: Any, x: Any) -> Any:
    if m.wrapped is None:
        m.wrapped = nn.Parameter(sa.TwoTensor(torch.ones(2), torch.ones(2)))
    return x * m.wrapped.a.detach()


def _copy(m: Any, x: Any) -> Any:
    if m.target is None or m.calls % 4 == 3:
        m.target = copy.deepcopy(m.layer)
    return x + m.target(x).detach()


def _freeze(m: Any, x: Any) -> Any:
    m.layer.weight.requires_grad_(m.calls % 3 == 0)
    return m.layer(x)


def _reads(m: Any, x: Any) -> Any:
    m.zero.requires_grad_()
    return x + m.zero if x.sum() > 0 else x - m.zero


def _exchange(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.memory.set_(x.detach()[:1] * 2)
    return x + m.memory


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "lazy": lambda m, x: m.lazy(x),
    "build": _build,
    "wrap": _wrap,
    "copy": _copy,
    "freeze": _freeze,
    "reads": _reads,
    "exchange": _exchange,
    "iterator": lambda m, x: x * next(m.numbers),
    "setting": lambda m, x: x * torch.get_num_threads(),
    "layer": lambda m, x: m.layer(x),
}


class Model(nn.Module):
    """Does some of `STEPS`, in order."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self.layer, self.lazy = nn.Linear(2, 2), nn.LazyLinear(2) if "lazy" in steps else None
        self.wrapped: Any = None
        self.target: Any = None
        self.steps, self.calls, self.numbers, self.memory = steps, 0, _numbers(), torch.zeros(1, 2)
        self.register_buffer("zero", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        for step in self.steps:
            x = STEPS[step](self, x)
        self.calls += 1
        return x


@dataclasses.dataclass(frozen=True)
class DrawnLasting:
    """A program, and how it is called: the rows, whether gradients are wanted, and the number of threads."""

    steps: tuple[str, ...]
    calls: tuple[tuple[int, bool, int], ...]


@st.composite
def lasting(draw: st.DrawFn) -> DrawnLasting:
    """Draws programs that are called several times, in training and inference, at changing sizes."""
    steps = draw(st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=4, unique=True))
    calls = st.tuples(st.integers(2, 4), st.booleans(), st.integers(1, 2))
    return DrawnLasting(tuple(steps), tuple(draw(st.lists(calls, min_size=2, max_size=5))))


def seeded(seed: int) -> DrawnLasting:
    """Returns one of them by a number."""
    draw = random.Random(seed)
    steps = draw.sample(list(STEPS), draw.randint(1, 4))
    calls = [(draw.randint(2, 4), draw.random() < 0.7, draw.randint(1, 2)) for _ in range(draw.randint(2, 5))]
    return DrawnLasting(tuple(steps), tuple(calls))


def check_lasting(drawn: DrawnLasting, door: Door = sa.aot_compile) -> None:
    """Compares a program with eager mode.

    Args:
        drawn: The program.
        door: By which door.
    """

    def run(door: Door) -> Any:
        model = Model([*drawn.steps])
        function, results, threads = door(model), [], torch.get_num_threads()
        try:
            for rows, grad, count in drawn.calls:
                torch.set_num_threads(count)
                with torch.set_grad_enabled(grad):
                    results.append(function(torch.arange(rows * 2.0).view(rows, 2) / 8 - 0.25))
                if results[-1].requires_grad:
                    results[-1].sum().backward()
        finally:
            torch.set_num_threads(threads)
        return results, model, model.memory, next(model.numbers)

    check(run, door)
