"""Reads where inputs begin in their storages, as far as a program depends on it. See Note [Places in memory]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.signature import Beginning
from subclass_aot.engine.trace.inputs import TracedInputs
from subclass_aot.kit.flatten import walk
from subclass_aot.meta import MetaTensor


def beginnings(inputs: TracedInputs, read: Iterable[object]) -> tuple[Beginning, ...]:
    """Finds what each call must have in common with the one that is traced.

    Args:
        inputs: The traced inputs.
        read: What the recorder noted: nodes of leaves, and wrappers.
    """
    found: dict[Beginning, None] = {}
    wrappers = list(_wrappers(inputs))
    for each in read:
        if isinstance(each, fx.Node):
            found.update(dict.fromkeys(_of_leaf(inputs, each)))
        else:
            # One that is no input is computed, and begins where those begin that are.
            known = [
                where for wrapper, where in wrappers if each is wrapper or _torch.autograd.base_of(each) is wrapper
            ]
            found.update(dict.fromkeys(known or [where for _, where in wrappers]))
    return tuple(found)


def _of_leaf(inputs: TracedInputs, node: fx.Node) -> Iterator[Beginning]:
    """Yields where a leaf stands, if it is one of an input."""
    for slot in inputs.plan.graph_slots:
        leaf = inputs.leaves[slot]
        if isinstance(leaf, MetaTensor) and leaf.meta_tag is node:
            place = inputs.plan.index_map.slots[slot]
            yield Beginning(place.outer, "".join(place.path), int(inputs.specs[slot].offset))


def _wrappers(inputs: TracedInputs) -> Iterator[tuple[torch.Tensor, Beginning]]:
    """Yields the wrappers among the inputs, and among the views after these."""
    metas = (*inputs.plan.flatten.metas, *inputs.views.plan.metas)
    for position, (value, meta) in enumerate(zip(inputs.seen, metas, strict=True)):
        for path, part, _ in walk(value, meta):
            if isinstance(part, torch.Tensor) and not isinstance(part, MetaTensor):
                yield part, Beginning(position, path, int(part.storage_offset()))
