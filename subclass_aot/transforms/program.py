"""A function of tensors that transforms of `torch.func` go through: compiled, and so is what they make of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import warn

Run = Callable[..., tuple[torch.Tensor, ...]]
"""A function of a list of tensors that no transform reaches, and of the others one by one."""
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

_FAILED = """What torch.func makes of {name} could not be compiled, and runs as in eager mode.
  It said: {kind}: {error}"""


class Program:
    """A function of tensors, compiled, and what transforms make of it.

    Args:
        run: The function.
        compile: Compiles one.
        name: What the user's function is called.
    """

    def __init__(self, run: Run, compile: Compile, name: str) -> None:
        self._compiled: Callable[..., Any] | None = compile(run)
        self._run = run
        self._compile = compile
        self._name = name
        self._derived: dict[Hashable, Program] = {}

    def __call__(self, rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs it, compiled, or as it is where that fails: then eager mode may fail, too."""
        if self._compiled is not None:
            try:
                return tuple(self._compiled(rest, *values))
            except Exception as error:
                result = self._run(rest, *values)
                self._compiled = None
                warn(_FAILED.format(name=self._name, kind=type(error).__name__, error=error))
                return result
        return self._run(rest, *values)

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

    def mapped(self, in_dims: tuple[int | None, ...], randomness: str) -> Program:
        """The program for many values at once, whose results have them along their first dimension.

        Args:
            in_dims: Along which dimension of each value; None for one that is the same for all.
            randomness: As `vmap` has it.
        """
        run = self._run

        def mapped(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            over = torch.func.vmap(lambda *own: run(rest, *own), in_dims, randomness=randomness)
            found: tuple[torch.Tensor, ...] = over(*values)
            return found

        return self._made(("mapped", in_dims, randomness), mapped)

    def _made(self, key: Hashable, run: Run) -> Program:
        found = self._derived.get(key)
        if found is None:
            found = self._derived.setdefault(key, Program(run, self._compile, self._name))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A program and those of its tensors that no transform reaches."""

    program: Program
    rest: list[Any]

    def __call__(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not _torch.inside_transform():  # the function that `vjp` returns runs when the transform is over
            values = tuple(map(_torch.without_past_levels, values))
            if not (torch.is_grad_enabled() and any(value.requires_grad for value in values)):
                return self.program(self.rest, *(value.detach() for value in values))
        found: tuple[torch.Tensor, ...] = _Transformed.apply(self, *values)  # type: ignore[no-untyped-call]
        return found


class _Transformed(torch.autograd.Function):
    """A program inside a transform. See Note [Transforms around]."""

    @staticmethod
    def forward(bound: Bound, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bound.program(bound.rest, *(value.detach() for value in values))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.bound, *values = inputs
        ctx.save_for_backward(*values)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x in output if not _is_differentiable(x)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        values = ctx.saved_tensors
        wanted = tuple(
            asked and _is_differentiable(x) for x, asked in zip(values, ctx.needs_input_grad[1:], strict=True)
        )
        given = tuple(gradient is not None for gradient in gradients)
        if not any(wanted) or not any(given):
            return (None,) * (1 + len(values))
        program = Bound(ctx.bound.program.gradient(wanted, given), ctx.bound.rest)
        found = iter(program(*values, *(gradient for gradient in gradients if gradient is not None)))
        return None, *(next(found) if is_wanted else None for is_wanted in wanted)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], bound: Bound, *values: torch.Tensor) -> Any:
        program = Bound(bound.program.mapped(tuple(in_dims[1:]), info.randomness), bound.rest)
        results = program(*values)
        return results, (0,) * len(results)


def _is_differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
