"""Assignments to the `.data` of an input: one more result, and one more change at the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.plain_subclasses import leaf_of
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.graph import assignments, tape
from subclass_aot.engine.objects import AccessPath
from subclass_aot.engine.outcome import Change, Leaf, Outcome
from subclass_aot.engine.trace import TracedInputs
from subclass_aot.meta import MetaTensor, new_leaf

_OTHER_OBJECT = "sees it as a view of another input"
_METADATA_MUTATED = "changes its sizes or strides in place as well"
_VIEW = "returns a view of it, or puts one somewhere"


def with_assigned_data(
    outcome: Outcome,
    results: list[Any],
    inputs: TracedInputs,
    recorder: tape.Tape,
    assigned: Iterable[tuple[MetaTensor, MetaTensor]],
) -> tuple[Outcome, list[Any]]:
    """Returns the outcome and the flattened results, with what inputs get to hold. Their leaves become those of before.

    Args:
        outcome: What the function leaves behind.
        results: Its results.
        inputs: Its inputs.
        recorder: What records.
        assigned: The leaf of each input that got other memory, and what it was.

    Raises:
        LastingChangeError: A call could not do that again.
    """
    for leaf, before in assigned:
        position = next((i for i, x in enumerate(inputs.traced) if leaf_of(x) is leaf), None)
        if position is None:
            raise assignments.not_assigned(f"the function {_OTHER_OBJECT}", str(descriptor_of(before.meta_tag)))
        tensor, path = inputs.traced[position], inputs.plan.paths[position]
        if any(mutated is tensor for mutated, *_ in recorder.mutations.metadata):
            raise assignments.not_assigned(f"the function {_METADATA_MUTATED}", path)
        if any(isinstance(x, torch.Tensor) and _torch.autograd.base_of(x) is tensor for x in results):
            raise assignments.not_assigned(f"the function {_VIEW}", path)
        (slot,) = inputs.plan.index_map.flat_of(position)
        inputs.leaves[slot] = before
        holds = new_leaf(leaf.meta_spec, leaf.meta_storage)
        holds.meta_tag = leaf.meta_tag
        change = Change.of_memory(len(outcome.objects), path, Leaf(len(results)))
        results = [*results, holds]
        outcome = dataclasses.replace(
            outcome,
            objects=(*outcome.objects, AccessPath("values", (position,))),
            changes=(change, *outcome.changes),  # a `.grad` that is put there has its metadata
            assigned=(*outcome.assigned, f"{path}.data"),
        )
    return outcome, results
