"""Wrapper classes of which several tensors share a structure: what it is in a trace, each such class says itself.

A structure is some of the inner tensors. Inputs that share it do so in the trace, a gradient has the structure of what
it belongs to, and a result that has that of an input is given the very tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from subclass_aot.base.later import Registry
from subclass_aot.kit.flatten import FlattenPlan, IndexMap, SubclassCreationMeta, ValueMeta

Known = Callable[[torch.Tensor], torch.Tensor | None]
"""Returns the values of a traced tensor, if they are known."""


class Structure(Protocol):
    """What a trace asks of a class whose tensors share a structure."""

    def is_structure(self, path: tuple[str, ...]) -> bool:
        """Returns whether the leaf at a path of a tensor is a part of its structure."""

    def on_traced(self, tensor: torch.Tensor) -> None:
        """Notes on the structure of a tensor of the trace, which was just made, what the class reads of it."""

    def gradient_like(self, like: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Makes a gradient that has the structure of the tensor that it belongs to, as the same tensors."""

    def with_known_values(self, blank: torch.Tensor, traced: torch.Tensor, known: Known) -> torch.Tensor:
        """Makes a tensor of no trace like a traced one, of which the structure has the values that are known."""

    def around(self) -> AbstractContextManager[object]:
        """Returns what a function runs in that is given such tensors."""


STRUCTURES: Registry[Structure] = Registry("structure")
"""By the full names of classes."""


def structure_of(cls: type) -> Structure | None:
    """Returns what a class says of its structure; None for one that shares none."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    return STRUCTURES.get(name)


def structures_in(metas: Sequence[ValueMeta]) -> dict[int, Structure]:
    """Returns the structures of planned values, by their positions."""
    found = {i: structure_of(meta.cls) for i, meta in enumerate(metas) if isinstance(meta, SubclassCreationMeta)}
    return {i: structure for i, structure in found.items() if structure is not None}


def structure_slots(metas: Sequence[ValueMeta], index_map: IndexMap) -> tuple[int, ...]:
    """Returns the flat slots that hold structures."""
    there = structures_in(metas)
    if not there:
        return ()
    leaves = [slot for slot in index_map.slots if slot.kind == "leaf" and slot.outer in there]
    return tuple(slot.flat for slot in leaves if there[slot.outer].is_structure(slot.path))


def structure_in(plan: FlattenPlan, values: Sequence[Any]) -> dict[int, Any]:
    """Returns the structures of planned values, by flat slot of the plan."""
    found: dict[int, Any] = {}
    for slot in structure_slots(plan.metas, plan.index_map):
        step = plan.index_map.slots[slot]
        found[slot] = getattr(values[step.outer], step.path[0].removeprefix("."))
    return found


def with_known_structure(blank: torch.Tensor, traced: torch.Tensor, known: Known) -> torch.Tensor:
    """Makes a tensor of no trace like a traced one, of which the structure has the values that are known.

    Args:
        blank: One whose structure has no values; one that shares none is returned as it is.
        traced: The tensor that it is like.
        known: Returns the values of a traced tensor.
    """
    structure = structure_of(type(blank))
    return blank if structure is None else structure.with_known_values(blank, traced, known)
