"""Random programs that draw by `random` and `numpy.random`, and read and write arrays of numpy."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from subclass_aot.engine.compile import aot_compile

HELD = random.Random(3)

STATEMENTS = (
    "x = x * random.random()",
    "x = x + random.uniform(-1, 1) * random.gauss(0, 1)",
    "x = x - np.random.rand() * np.random.standard_normal()",
    "x = x * np.random.randint(1, 3)",
    "x = x + torch.from_numpy(np.random.rand(3))",
    "x = x * torch.tensor(random.random())",
    "x = x * 2 if random.random() < 0.5 else x - 1",
    "for _ in range(random.randint(0, 2)): x = x + 1",
    "x = x * random.choice([1.0, 2.0])",
    "x = x[torch.as_tensor(np.random.permutation(3))]",
    "x = x + torch.rand(3, dtype=x.dtype)",
    "random.seed(3)",
    "np.random.seed(2)",
    "torch.manual_seed(1)",
    "x = x * float(x.detach().numpy().sum())",
    "x = x + torch.from_numpy(np.sort(x.detach().numpy()))",
    "x = x[torch.as_tensor(np.argsort(x.detach().numpy()))]",
    "a = (x.detach() * 2).numpy(); a[0] = 3.0; x = x + torch.from_numpy(a)",
    "b = x.detach() * 2; a = b.numpy(); a[1] = 3.0; x = x + b",
    "b = x.detach() + 1; a = b.numpy(); b.add_(1); x = x * float(a[0])",
    "b = x.detach() + 1; s = float(b.numpy()[0]); b.mul_(2); x = x * s + b",
    "a = np.zeros(3); t = torch.from_numpy(a); t.add_(x.detach()); x = x + float(a.sum())",
    "x = x * np.abs(np.asarray(x.detach())).max().item()",
    "x = x + HELD.random()",
    "seen.append(random.random())",
)


@dataclass(frozen=True)
class DrawnNumbers:
    """A program.

    Attributes:
        statements: What it does to `x`, a statement in each line.
        training: Whether gradients are computed.
        dynamic: As in `aot_compile`.
        values_limit: As in `aot_compile`.
    """

    statements: tuple[str, ...]
    training: bool
    dynamic: bool | None
    values_limit: int

    def function(self, seen: list[Any]) -> Callable[[Any], Any]:
        """Returns the program as a function that may append to a list."""
        scope: dict[str, Any] = {"__name__": __name__, "random": random, "np": np, "torch": torch}
        scope |= {"HELD": HELD, "seen": seen}
        lines = "".join(f"    {line}\n" for line in self.statements)
        exec(f"def program(x):\n{lines}    return x\n", scope)
        return scope["program"]  # type: ignore[no-any-return]


def numbers() -> st.SearchStrategy[DrawnNumbers]:
    """Draws programs."""
    return st.builds(
        DrawnNumbers,
        st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5).map(tuple),
        st.booleans(),
        st.sampled_from((None, None, False, True)),
        st.sampled_from((1, 8)),
    )


def check_numbers(drawn: DrawnNumbers) -> None:
    """Compares calls under one seed with eager mode: results, gradients, and where the generators are left.

    Args:
        drawn: The program.

    Raises:
        AssertionError: There is a difference.
    """
    expected, got = _run(drawn, lambda f: f), _run(drawn, drawn_compiled(drawn))
    for call, (one, other) in enumerate(zip(expected, got, strict=True)):
        for a, b in zip(one[:2], other[:2], strict=True):
            torch.testing.assert_close(b, a, equal_nan=True, msg=lambda text: f"call {call}, {drawn}: {text}")  # noqa: B023
        assert one[2:] == other[2:], f"call {call}, {drawn}: the generators, or what was appended"


def drawn_compiled(drawn: DrawnNumbers) -> Callable[[Any], Any]:
    """Returns what compiles a program."""
    return lambda f: aot_compile(f, dynamic=drawn.dynamic, values_limit=drawn.values_limit)


def _run(drawn: DrawnNumbers, compile_: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    HELD.seed(0)
    seen: list[Any] = []
    compiled, found = compile_(drawn.function(seen)), []
    for k in range(4):
        x = (torch.arange(3.0, dtype=torch.float64) + k % 3).requires_grad_(drawn.training)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = compiled(x)
        if result.requires_grad:
            result.sum().backward()
        states = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist(), HELD.getstate()
        gradient = torch.zeros(3) if x.grad is None else x.grad
        found.append((result.detach().clone(), gradient, *states, list(seen)))
    return found
