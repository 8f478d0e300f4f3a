"""Random optimizers of one's own: state by tensor keys, counters of steps, momenta that are written or replaced."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.codegen import Source
from subclass_aot.engine.compile import aot_compile
from subclass_aot.tensors import TwoTensor
from subclass_aot.testing.compare import difference

BEGIN = (
    "if 'step' not in state: state.update(step=0, mean=torch.zeros_like(p), rows=[], inner={}, slot=Slot(n=0, last=g))"
)
"""What each step begins with."""

LINES = (
    "state['step'] += 1", "state['mean'] = state['mean'] * 0.5 + g", "state['mean'].mul_(0.5).add_(g)",
    "state['mean'] = state['mean'].lerp(g, 0.5)", "state['rows'].append(g.clone())", "del state['rows'][:-2]",
    "state['rows'] = [row * 2 for row in state['rows']]", "state['inner']['n'] = state['inner'].get('n', 0) + 2",
    "state['inner']['largest'] = torch.maximum(state['inner'].get('largest', g), g)", "state['slot'].n += 1",
    "state['slot'].last = state['slot'].last + g", "state['slot'] = Slot(n=state['slot'].n, last=g * 2)",
    "state['other'] = state.pop('other', g) * 0.5", "self.counts[p]['n'] += 1", "self.counts[p]['of'].append(g.sum())",
    "self.counts[p] = {'n': self.counts[p]['n'] + 1, 'of': []}", "self.total = self.total + g.sum()",
    "p.sub_(state['mean'] * 0.1)", "p.mul_(1 - 0.1 * state['step'])", "p.add_(g, alpha=-0.1 / (1 + state['step']))",
    "p.sub_(state['slot'].last * 0.01 * state['slot'].n)", "p.data.add_(g)", "p.sub_(0.01 * sum(state['rows'], g))",
    "if state['step'] == 2: p.zero_()",
)  # fmt: skip
"""What a step does with a parameter `p`, its gradient `g` and its state."""


@dataclass(frozen=True)
class DrawnOptimizer:
    """An optimizer, and what it trains.

    Attributes:
        lines: What a step does with each parameter.
        wraps: For each parameter, whether it is a wrapper.
        calls: How many steps are made.
        rows: For each parameter, how many rows it has.
        is_alone: Whether the step alone is compiled, and the gradients are there before it.
    """

    lines: tuple[str, ...]
    wraps: tuple[bool, ...]
    calls: int = 3
    rows: tuple[int, ...] = (2, 2, 2)
    is_alone: bool = False

    def __repr__(self) -> str:
        kind = f"wraps={self.wraps}, rows={self.rows}, is_alone={self.is_alone}, {self.calls} steps"
        return "\n".join((kind, BEGIN, *self.lines))

    @functools.cached_property
    def step(self) -> Callable[..., None]:
        """What is done with each parameter."""
        source = Source("step", "self, p, g, state")
        source.globals.update(torch=torch, Slot=types.SimpleNamespace)
        for line in (BEGIN, *self.lines):
            source.line(line)
        step: Any = source.build("program")
        step.__globals__["__name__"] = "__main__"  # a module that can be imported, as Dynamo does
        return step  # type: ignore[no-any-return]

    def make(self) -> tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], Any], Callable[[], Any]]:
        """What is done before a step, a step, and what tells the state."""
        step = self.step

        class Drawn(torch.optim.Optimizer):
            __module__ = "__main__"  # as one of a user's

            def __init__(self, parameters: Any) -> None:
                super().__init__(parameters, {})
                self.counts: dict[torch.Tensor, Any] = collections.defaultdict(lambda: {"n": 0, "of": []})
                self.total = torch.zeros(())
                for p in parameters:
                    self.counts[p]["n"] = 1

            @torch.no_grad()
            def step(self) -> None:  # type: ignore[override]
                for group in self.param_groups:
                    for p in group["params"]:
                        step(self, p, p.grad, self.state[p])

        generator = torch.Generator().manual_seed(1)
        parameters = []
        for wraps, rows in zip(self.wraps, self.rows, strict=False):
            values = [torch.rand(rows, 2, generator=generator) for _ in range(2)]
            parameters.append(torch.nn.Parameter(TwoTensor(*values) if wraps else values[0]))
        optimizer = Drawn(parameters)

        def backward(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss: Any = sum((p * x).sin().sum() for p in parameters)
            loss.backward()
            result: torch.Tensor = loss.detach()
            return result

        def train(x: torch.Tensor) -> torch.Tensor:
            result = x * 2 if self.is_alone else backward(x)
            optimizer.step()
            return result

        def told() -> Any:
            return parameters, [*optimizer.state.items()], [*optimizer.counts.items()], optimizer.total

        return backward if self.is_alone else lambda x: None, train, told


def check_optimizer(drawn: DrawnOptimizer, compile: Callable[..., Any] = aot_compile) -> None:
    """Compares steps of training with eager mode. What fails there counts for nothing.

    Args:
        drawn: What to check.
        compile: What compiles a step.

    Raises:
        AssertionError: There is a difference.
    """
    try:
        eager = _run(drawn, lambda run: run)
    except Exception as error:  # as where a wrapper meets a dense tensor in a way that its class has no rule for
        pass_on_interruption(error)
        return
    for number, (expected, got) in enumerate(zip(eager, _run(drawn, compile), strict=True), 1):
        assert len(expected) == len(got), f"the state has other parts after step {number}"
        for x, y in zip(expected, got, strict=True):
            if isinstance(x, torch.Tensor):
                found = difference(x, y, rtol=1e-4)
                assert not found, f"after step {number}: {found}"
            else:
                assert type(x) is type(y) and x == y, f"after step {number}: {x!r} expected, {y!r} got"


def _run(drawn: DrawnOptimizer, compile: Callable[..., Any]) -> list[list[Any]]:
    before, train, told = drawn.make()
    compiled = compile(train)
    xs = [torch.full((), 1.0 + i) for i in range(drawn.calls)]
    return [_flattened((before(x), compiled(x), told())) for x in xs]


def _flattened(value: Any) -> list[Any]:
    """What stands in containers, in order; tensors as they are now."""
    if isinstance(value, types.SimpleNamespace):
        value = vars(value)
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list | tuple):
        return [part for x in value for part in _flattened(x)]
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value]


@st.composite
def optimizers(draw: st.DrawFn) -> DrawnOptimizer:
    """Optimizers, most of which run without an error."""
    lines = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=6))
    wraps = draw(st.lists(st.sampled_from([False, False, True]), min_size=1, max_size=3))
    rows = draw(st.tuples(*[st.integers(1, 3)] * 3))
    return DrawnOptimizer(tuple(lines), tuple(wraps), draw(st.integers(2, 4)), rows, draw(st.booleans()))
