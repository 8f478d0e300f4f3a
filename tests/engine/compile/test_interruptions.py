"""A handler of signals raises while the library runs: the user gets that very exception, and all is as it was."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot as sa
from tests.interrupting import Lines, modes

PLACES = {
    **{"first call": 10, "first backward": 8, "later call": 10, "later backward": 8},
    **{"other sizes": 4, "other backward": 2},
}
"""The steps of a training, and at how many lines of each `make test` sends a signal."""

STEPS = list(PLACES)

# Python prints what is raised while it frees an object, and passes over it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Net(torch.nn.Module):
    """Has a wrapper among its parameters, draws, writes into a buffer, and keeps what it computed in a list."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        numbers = [torch.randn(4, 4, generator=generator) for _ in range(3)]
        self.weight = torch.nn.Parameter(sa.TwoTensor(*numbers[:2]))
        self.bias = torch.nn.Parameter(numbers[2][0])
        self.register_buffer("steps", torch.zeros(()))
        self.seen = [torch.zeros(3, 4)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.steps.add_(1)
        y = torch.nn.functional.dropout(x * self.bias, 0.5)
        self.seen[0] = y.detach()
        return y, (self.weight * 2).sin()


class Training:
    """The steps of a training on a new module, with what they gave."""

    def __init__(self, compiled: bool = True) -> None:
        self.net = Net()
        self.run: Callable[..., Any] = sa.aot_compile(self.net) if compiled else self.net
        self.given: list[torch.Tensor] = []

    def step(self, name: str) -> None:
        """Calls or goes backward."""
        if "backward" in name:
            torch.autograd.backward([out.sum() for out in self.results])
            self.given += [self.x.grad, self.net.bias.grad, self.net.weight.grad.a]
            self.net.zero_grad()
        else:
            size = 5 if "other" in name else 3
            self.x = torch.arange(4.0 * size).reshape(size, 4).requires_grad_()
            torch.manual_seed(size)
            self.results = self.run(self.x)
            self.given += [self.results[0].detach(), self.results[1].detach().b, *self.net.seen, self.net.steps.clone()]

    def begin_again(self) -> None:
        """Gives the module the state that a new one has."""
        self.net.steps.zero_()
        self.net.seen[0] = torch.zeros(3, 4)
        self.net.zero_grad()
        self.given.clear()

    def kinds(self) -> set[type]:
        """The classes of the tensors that the user's objects hold."""
        weight = self.net.weight
        held = [self.net.bias, self.net.steps, weight, weight.a, weight.b, *self.net.seen]
        return {type(x) for x in held} | {type(x.grad) for x in (weight, self.net.bias)}


@cache
def expected() -> list[torch.Tensor]:
    eager = Training(compiled=False)
    for name in STEPS:
        eager.step(name)
    return eager.given


Place = int | tuple[str, int]
Choice = Callable[[dict[tuple[str, int], int]], list[Place]]


def interrupt(name: str, choose: Choice, files: tuple[str, ...] = ()) -> None:
    """Has signals come at lines of one step, one after the other, and checks each time what is there afterwards.

    Args:
        name: The step.
        choose: At which, of the lines that run, by file and line: the number of each when it runs first.
        files: Files of others whose lines are among them.
    """
    before, wanted = modes(), expected()
    training, steps = None, STEPS
    if "later" in name:  # the same module all the time, which sees no other sizes: then the same lines run
        steps = STEPS[: STEPS.index("other sizes")]
    places: list[Place] = [-1]  # no signal, until the same lines run twice: then all is remembered that ever is
    count = 0
    for number, at in enumerate(places):
        if training is None or "later" not in name:
            training = Training()
        training.begin_again()
        for earlier in STEPS[: STEPS.index(name)]:
            training.step(earlier)
        raised = None
        with Lines(at, files) as lines:
            try:
                training.step(name)
            except Exception as error:
                raised = error
        if at == -1:
            assert raised is None
            assert number < 8, f"other lines run each time: {count} and {lines.count} in the end"
            places += choose(lines.first) if lines.count == count else [-1]
            count = lines.count
            continue
        assert lines.where, "the line was not reached"
        assert raised is lines.raised or lines.in_finalizer, f"{lines.where}: {raised!r}"
        assert modes() == before, lines.where
        assert training.kinds() <= {torch.Tensor, torch.nn.Parameter, sa.TwoTensor, type(None)}, lines.where
        training.begin_again()
        for again in steps:
            training.step(again)
        assert training.given and all(map(torch.equal, training.given, wanted)), lines.where
    assert len(places) > 2


def spread(count: int) -> Choice:
    def choose(first: dict[tuple[str, int], int]) -> list[Place]:
        numbers = sorted(first.values())
        return [numbers[i * len(numbers) // count] for i in range(min(count, len(numbers)))]

    return choose


def test_without_a_signal_it_is_right() -> None:
    training = Training()
    for name in STEPS:
        training.step(name)
    assert len(training.given) == len(expected()) and all(map(torch.equal, training.given, expected()))


@pytest.mark.every_case
@pytest.mark.parametrize("name", STEPS)
def test_at_some_lines(name: str) -> None:
    interrupt(name, spread(PLACES[name]))


@pytest.mark.long
@pytest.mark.every_case
@pytest.mark.parametrize("name", STEPS)
def test_at_many_lines(name: str) -> None:
    interrupt(name, spread(60))


def test_where_models_get_their_own_tensors_back() -> None:
    """Other threads would save a model without data."""

    def choose(first: dict[tuple[str, int], int]) -> list[Place]:
        return [(file, line) for file, line in first if file.endswith("of_thread.py") and line in set(_of_blocks(file))]

    interrupt("first call", choose)


@pytest.mark.long
@pytest.mark.every_case
@pytest.mark.parametrize("name", ["first call", "first backward", "other sizes"])
def test_where_modes_and_objects_are_put_back(name: str) -> None:
    """All lines of what enters and leaves blocks, where a mode that stays on would do the most harm."""

    def choose(first: dict[tuple[str, int], int]) -> list[Place]:
        own = {file: set(_of_blocks(file)) for file, _ in first}
        return [(file, line) for file, line in first if line in own[file]]

    interrupt(name, choose)


@pytest.mark.long
@pytest.mark.every_case
def test_in_blocks_of_others() -> None:
    """All lines of what enters and leaves blocks in torch and in `contextlib`: what they miss is put back, too."""
    files = (contextlib.__file__, torch.utils._python_dispatch.__file__, torch.autograd.grad_mode.__file__)
    interrupt("first call", lambda first: [place for place in first if place[0] in files], files)


def _of_blocks(file: str) -> Iterator[int]:
    """The lines of context managers, and of `finally`."""
    for node in ast.walk(ast.parse(Path(file).read_text())) if not file.startswith("<") else ():
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "contextmanager" in decorators or node.name in ("__enter__", "__exit__"):
                yield from range(node.lineno, node.end_lineno + 1)
        elif isinstance(node, ast.Try):
            for statement in node.finalbody:
                yield from range(statement.lineno, statement.end_lineno + 1)
