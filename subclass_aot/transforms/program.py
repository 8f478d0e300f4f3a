"""A function of tensors that transforms of `torch.func` go through: compiled, and so is what they make of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption, warn
from subclass_aot.transforms.halves import Halve, Halves, Run

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

Dims = tuple[int | None, ...]

_LIMIT = 8
"""For how many sizes halves are kept."""

_FAILED = """What torch.func makes of {name} could not be compiled, and runs as in eager mode.
  It said: {kind}: {error}"""


class Program:
    """A function of tensors, compiled, and what transforms make of it.

    Args:
        run: The function.
        compile: Compiles one.
        name: What the user's function is called.
        halve: Takes it apart; None if its gradients compute forward again.
    """

    def __init__(self, run: Run, compile: Compile, name: str, halve: Halve | None = None) -> None:
        self._compiled: Callable[..., Any] | None = compile(run)
        self._run = run
        self._compile = compile
        self._name = name
        self._halve = halve
        self._derived: dict[Hashable, Program] = {}
        self._halved: dict[Hashable, Halved | None] = {}

    def __call__(self, rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs it, compiled, or as it is where that fails: then eager mode may fail, too."""
        if self._compiled is not None:
            try:
                return tuple(self._compiled(rest, *values))
            except Exception as error:
                pass_on_interruption(error)
                result = self._run(rest, *values)
                self._compiled = None
                warn(_FAILED.format(name=self._name, kind=type(error).__name__, error=error))
                return result
        return self._run(rest, *values)

    def attempt(self, rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
        """Runs it, compiled; None where that fails."""
        if self._compiled is None:
            return None
        try:
            return tuple(self._compiled(rest, *values))
        except Exception as error:
            pass_on_interruption(error)
            self._compiled = None
            return None

    def as_it_is(self, rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs it as in eager mode, where any transform may follow."""
        return self._run(rest, *values)

    def halved(self, wanted: tuple[bool, ...], rest: list[Any], values: Sequence[torch.Tensor]) -> Halved | None:
        """Its two halves, for tensors of these sizes; None if there are none.

        Args:
            wanted: Of which values backward computes gradients.
            rest: Tensors that no transform reaches.
            values: The others.
        """
        if self._halve is None:
            return None
        key = (wanted, *((x.shape, x.dtype) for x in values))
        if key not in self._halved:
            stand_ins = [_torch.without_levels(x) for x in values]
            if len(self._halved) >= _LIMIT or any(x is None for x in stand_ins):
                return None
            halves = self._halve(self._run, rest, [x for x in stand_ins if x is not None], wanted)
            self._halved[key] = None if halves is None else self._compiled_halves(halves)
        return self._halved[key]

    def _compiled_halves(self, halves: Halves) -> Halved:
        forward, backward = (Program(run, self._compile, self._name) for run in (halves.forward, halves.backward))
        return Halved(halves, forward, backward)

    def gradient(self, wanted: tuple[bool, ...], given: tuple[bool, ...]) -> Program:
        """The program of the gradients: of values, then of the gradients of those results that have one.

        Args:
            wanted: Of which values.
            given: Which results have one.
        """
        run = self._run

        def gradients(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            own, tangents = values[: len(wanted)], values[len(wanted) :]

            def of(*wished: torch.Tensor) -> tuple[torch.Tensor, ...]:
                found = iter(wished)
                inputs = [next(found) if is_wanted else value for value, is_wanted in zip(own, wanted, strict=True)]
                results = zip(run(rest, *inputs), given, strict=True)
                return tuple(result for result, is_given in results if is_given)

            pull: Any = torch.func.vjp(of, *(value for value, is_wanted in zip(own, wanted, strict=True) if is_wanted))[
                1
            ]
            found: tuple[torch.Tensor, ...] = pull(tangents)
            return found

        return self._made(("gradient", wanted, given), gradients)

    def mapped(self, in_dims: Dims, randomness: str, out_dims: Dims | int = 0) -> Program:
        """The program for many values at once.

        Args:
            in_dims: Along which dimension of each value; None for one that is the same for all.
            randomness: As `vmap` has it.
            out_dims: The same for results, which have them along their first dimension.
        """
        run = self._run

        def mapped(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            to: Any = out_dims  # a tuple may have None, whatever is said
            over = torch.func.vmap(lambda *own: run(rest, *own), in_dims, to, randomness)
            found: tuple[torch.Tensor, ...] = over(*values)
            return found

        return self._made(("mapped", in_dims, randomness, out_dims), mapped)

    def _made(self, key: Hashable, run: Run) -> Program:
        found = self._derived.get(key)
        if found is None:
            found = self._derived.setdefault(key, Program(run, self._compile, self._name, self._halve))
        return found


class Halved(NamedTuple):
    """The halves of a program, compiled.

    Attributes:
        halves: The halves.
        forward: The first one.
        backward: The second one.
    """

    halves: Halves
    forward: Program
    backward: Program
