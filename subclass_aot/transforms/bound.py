"""A program at a call, inside the levels of transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.transforms.kept import Keeping, Reading, leaves_and_wrappers
from subclass_aot.transforms.program import Dims, Program


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A program and those of its tensors that no transform reaches.

    Attributes:
        program: The program.
        rest: Its tensors that no transform reaches; None in the place of the others.
        way: What runs it by way of residuals.
    """

    program: Program
    rest: list[Any]
    way: Keeping | Reading | None = None

    def __call__(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs it, inside of transforms or outside."""
        values = tuple(map(_torch.without_past_levels, values))  # what `vjp` returns runs when that transform is over
        if not _torch.inside_transform():
            if not (torch.is_grad_enabled() and any(value.requires_grad for value in values)):
                return self.run(values)
        elif not _torch.takes_functions_through_transforms():  # forward mode around what `vjp` returns
            return self.program.as_it_is(self.rest, *values)
        found: tuple[torch.Tensor, ...] = _Transformed.apply(self._keeping(values), *values)  # type: ignore[no-untyped-call]
        return found

    def run(self, values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Runs it on plain tensors."""
        values = [value.detach() for value in values]
        way = None if _torch.is_any_autocast_enabled() else self.way
        found = None if way is None else way(self.rest, values)
        return self.program(self.rest, *values) if found is None else found

    def gradient(self, wanted: tuple[bool, ...], given: tuple[bool, ...]) -> Bound:
        """What computes its gradients. See `Program.gradient`."""
        way = None if self.way is None else self.way.backward(wanted, given)
        return Bound(self.program.gradient(wanted, given), self.rest, way)

    def mapped(self, in_dims: Dims, randomness: str) -> Bound:
        """What runs it for many values at once. See `Program.mapped`."""
        way = None if self.way is None else self.way.mapped(in_dims, randomness)
        return Bound(self.program.mapped(in_dims, randomness), self.rest, way)

    def read_later(self) -> list[torch.Tensor]:
        """What a gradient reads of its tensors that no transform reaches: not to be written by then."""
        return leaves_and_wrappers(self.rest) if self.way is None else self.way.read_of(self.rest)

    def _keeping(self, values: Sequence[torch.Tensor]) -> Bound:
        """For a call whose gradient the innermost transform may ask for: a forward that keeps residuals."""
        if self.way is not None or not torch.is_grad_enabled():
            return self
        wanted = tuple(_is_differentiable(x) and _torch.is_followed(x) for x in values)
        halved = self.program.halved(wanted, self.rest, values) if any(wanted) else None
        return self if halved is None else Bound(self.program, self.rest, Keeping.of(halved))


class _Transformed(torch.autograd.Function):
    """A program inside a transform. See Note [Transforms around]."""

    @staticmethod
    def forward(bound: Bound, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bound.run(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.bound, *values = inputs
        # Inside of transforms, torch does not see writes into what no transform reaches.
        seen = any(ctx.needs_input_grad) and not _torch.inside_transform()
        ctx.save_for_backward(*values, *(ctx.bound.read_later() if seen else ()))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x in output if not _is_differentiable(x)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        asked = ctx.needs_input_grad[1:]
        values = ctx.saved_tensors[: len(asked)]
        wanted = tuple(is_asked and _is_differentiable(x) for x, is_asked in zip(values, asked, strict=True))
        given = tuple(gradient is not None for gradient in gradients)
        if not any(wanted) or not any(given):
            return (None,) * (1 + len(values))
        defined = (gradient for gradient in gradients if gradient is not None)
        found = iter(ctx.bound.gradient(wanted, given)(*values, *defined))
        return None, *(next(found) if is_wanted else None for is_wanted in wanted)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], bound: Bound, *values: torch.Tensor) -> Any:
        results = bound.mapped(tuple(in_dims[1:]), info.randomness)(*values)
        return results, (0,) * len(results)


def _is_differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
