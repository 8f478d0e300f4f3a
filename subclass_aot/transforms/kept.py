"""What runs forward and backward of one call where forward keeps residuals. See Note [Residuals]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from subclass_aot.flatten import FlattenPlan
from subclass_aot.transforms.program import Dims, Halved, Program


@dataclass(slots=True, eq=False)
class Kept:
    """What the forward of a call keeps for its backward.

    Attributes:
        halved: The two halves.
        dims: For each `vmap` that forward went down through, the innermost first: along which dimension it has the
            many of each residual.
        read: What backward reads of tensors that no transform reaches, once forward has run.
        residuals: The residuals, once forward has run.
    """

    halved: Halved
    dims: list[Dims] = field(default_factory=list)
    read: list[torch.Tensor] = field(default_factory=list)
    residuals: tuple[torch.Tensor, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Keeping:
    """Runs a program by a forward that keeps residuals.

    Attributes:
        kept: Where it keeps them.
        forward: What runs.
    """

    kept: Kept
    forward: Program

    @staticmethod
    def of(halved: Halved) -> Keeping:
        """For a new call."""
        return Keeping(Kept(halved), halved.forward)

    def __call__(self, rest: list[Any], values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
        """The results; None where it fails."""
        found = self.forward.attempt(rest, *values)
        if found is None:
            return None
        halves = self.kept.halved.halves
        count = len(halves.given)
        self.kept.read = halves.read(rest)
        seen = set(map(id, found[:count]))  # a result that holds its history would hold itself
        self.kept.residuals = tuple(x.detach() if id(x) in seen else x for x in found[count:])
        return found[:count]

    def mapped(self, in_dims: Dims, randomness: str) -> Keeping:
        """For many values at once. See `Program.mapped`."""
        halves = self.kept.halved.halves
        of_residuals = tuple(0 if any(in_dims[i] is not None for i in reads) else None for reads in halves.reads)
        self.kept.dims.append(of_residuals)
        out_dims = (0,) * len(halves.given) + of_residuals
        return Keeping(self.kept, self.forward.mapped(in_dims, randomness, out_dims))

    def backward(self, wanted: tuple[bool, ...], given: tuple[bool, ...]) -> Reading | None:
        """What computes gradients; None if no half does.

        Args:
            wanted: Of which values.
            given: Which results have a gradient.
        """
        halves = self.kept.halved.halves
        if (
            not self._is_own
            or given != halves.given
            or any(w and not h for w, h in zip(wanted, halves.wanted, strict=True))
        ):
            return None
        chosen = [w for w, h in zip(wanted, halves.wanted, strict=True) if h]
        return Reading(self.kept, self.kept.halved.backward, tuple(i for i, w in enumerate(chosen) if w))

    def read_of(self, rest: list[Any]) -> list[torch.Tensor]:
        """What gradients read of tensors that no transform reaches; beside leaves of a wrapper, the wrapper."""
        if not self._is_own or self.kept.residuals is None:
            return leaves_and_wrappers(rest)
        return self.kept.read + [rest[i] for i in self.kept.halved.halves.read.tensors]

    @property
    def _is_own(self) -> bool:
        """Whether this is the forward that backward is for, and not what a `vmap` made of it."""
        return self.forward is self.kept.halved.forward


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Runs a gradient by a backward that reads residuals.

    Attributes:
        kept: Where they are kept.
        program: What runs.
        chosen: Which of its results are wanted.
        depth: How many `vmap`s that forward went through this one went through, too.
    """

    kept: Kept
    program: Program
    chosen: tuple[int, ...]
    depth: int = 0

    def __call__(self, rest: list[Any], values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
        """The gradients; None where there are no residuals, or it fails."""
        if self.kept.residuals is None or self.depth != len(self.kept.dims):
            return None
        found = self.program.attempt(self.kept.read, *values, *self.kept.residuals)
        return None if found is None else tuple(found[i] for i in self.chosen)

    def mapped(self, in_dims: Dims, randomness: str) -> Reading | None:
        """For many values or many gradients at once: if it is values, then forward was mapped, too."""
        depth, halves = self.depth, self.kept.halved.halves
        of_residuals: Dims = (None,) * len(halves.reads)
        if any(dim is not None for dim in in_dims[: len(halves.wanted)]):
            if depth == len(self.kept.dims):
                return None
            of_residuals, depth = self.kept.dims[depth], depth + 1
        return Reading(self.kept, self.program.mapped(in_dims + of_residuals, randomness), self.chosen, depth)

    def backward(self, wanted: tuple[bool, ...], given: tuple[bool, ...]) -> None:
        """A gradient of a gradient computes everything again."""

    def read_of(self, rest: list[Any]) -> list[torch.Tensor]:
        """That computes with all tensors."""
        return leaves_and_wrappers(rest)


def leaves_and_wrappers(rest: list[Any]) -> list[torch.Tensor]:
    """All tensors of a call that no transform reaches, and beside leaves of a wrapper, the wrapper."""
    tensors = [x for x in rest if x is not None]
    return tensors + [leaf for x in tensors for leaf in FlattenPlan.leaves_of(x) if leaf is not x]
