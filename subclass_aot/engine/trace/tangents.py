"""The gradients that will come in: known once the function has run."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.engine.descriptors import OutputDescriptor, Tangent
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.signature import TangentSpec
from subclass_aot.engine.structures import structure_in
from subclass_aot.engine.trace.outputs import packed_tangent, part_of, spec_of_tangent
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.wrapper import plain_tangent
from subclass_aot.meta import MetaTensor, Spec


@dataclass(frozen=True, slots=True, eq=False)
class Tangents:
    """One gradient for each result that has one.

    Attributes:
        outputs: What each of the results is.
        ends: The results.
        plan: How the gradients are flattened.
        leaves: What is in each of their flat slots: the spec of a tensor, a number, or None for what `given` has.
        given: By flat slot, what is not passed, since the result has it: the structure of jagged tensors.
    """

    outputs: tuple[OutputDescriptor, ...]
    ends: tuple[torch.Tensor, ...]
    plan: FlattenPlan
    leaves: tuple[Any, ...]
    given: Mapping[int, Any]

    @staticmethod
    def of(
        outputs: Iterable[OutputDescriptor], ends: Iterable[torch.Tensor], kinds: Mapping[int, torch.Tensor | None]
    ) -> Tangents:
        """Says what comes in.

        Args:
            outputs: What each of the results is.
            ends: The results.
            kinds: The kind of the gradient of each, by its position: a fake, or None for the kind that is expected.
                A result that is not among them gets none.
        """
        descs = tuple(desc for i, desc in enumerate(outputs) if i in kinds)
        kept = tuple(end for i, end in enumerate(ends) if i in kinds)
        with torch.no_grad():
            like = [
                packed_tangent(plain_tangent(end.detach())) if kind is None else kind
                for end, (_, kind) in zip(kept, sorted(kinds.items()), strict=True)
            ]
        plan, leaves = FlattenPlan.read(like, where="tangents")
        given = structure_in(plan, kept)
        specs = tuple(None if i in given else _spec(x) for i, x in enumerate(leaves))
        return Tangents(descs, kept, plan, specs, given)

    def described(self, errors: Mapping[int, str], running_code: Container[int]) -> tuple[TangentSpec, ...]:
        """Returns the description of the tangent of each result.

        Args:
            errors: Why none must come in for some, by their positions.
            running_code: The positions of those that lead to code of the program which not all of them lead to.
        """
        flat_of = self.plan.index_map.flat_of
        return tuple(
            TangentSpec(output, meta, tuple(self.leaves[s] for s in flat_of(i)), errors.get(i), i in running_code)
            for i, (output, meta) in enumerate(zip(self.outputs, self.plan.metas, strict=True))
        )

    @property
    def specs(self) -> list[Spec]:
        """Those of the leaves that are tensors."""
        return [spec for spec in self.leaves if isinstance(spec, Spec)]

    def collections(self) -> list[Collection[Any]]:
        """Returns the collections that hold traced tensors."""
        return [self.ends, self.given, self.given.values()]

    def make(self, recorder: Recorder) -> tuple[Any, ...]:
        """Makes placeholders for them. They bring no sizes: those of the results are known."""
        leaves = list(self.leaves)
        number = 0
        for position, spec in enumerate(leaves):
            if isinstance(spec, Spec):
                number += 1
                slot = self.plan.index_map.slots[position]
                desc = part_of(Tangent(self.outputs[slot.outer]), slot)
                leaves[position] = recorder.placeholder(f"tangents_{number}", spec, desc)
        for position, leaf in self.given.items():
            leaves[position] = leaf
        return self.plan.generate_wrap(check=False)(leaves)


def _spec(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return spec_of_tangent(leaf.meta_spec if isinstance(leaf, MetaTensor) else Spec.of(leaf))
