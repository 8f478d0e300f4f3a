"""Leaves that share memory.

Note [Shared storage]
~~~~~~~~~~~~~~~~~~~~~
A graph reads its inputs as if each had memory of its own. That is right as long as nothing is written. Where a leaf is
written and another leaf overlaps it, both become views of one more graph input, the base: a flat tensor over the whole
storage. Writes then reach every view by functionalization, and one `copy_` into the base writes all of them back, so
that other leaves of the storage that are written, overlapping or not, are views of it, too. What wraps the leaves does
not matter.

Here `a` and `b` are views of one storage. It is one more input of the graph, and the guard compares where they begin:

>>> import subclass_aot as sa
>>> def f(a, b):
...     a.add_(1)
...     return b * 2
>>> x = torch.zeros(4)
>>> compiled = sa.aot_compile(f, fw_compiler="eager")
>>> compiled(x[:3], x[1:])
tensor([2., 2., 0.])
>>> print(compiled.source)
def call(...):
    ...
    if ...storage_offset() != 0: return MISS
    if ...storage_offset() != 1: return MISS
    ...
    outputs = forward_graph([..., flat_base(...)])
    ...

One tensor that is passed twice is one input, and no base:

>>> _ = compiled(x, x)
>>> print(compiled.source)
def call(...):
    ...
    if args...1... is not args...0...: return MISS
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from subclass_aot.errors import MutationError
from subclass_aot.meta import MetaTensor, Spec

_DTYPES_DIFFER = """{paths} share storage, have different dtypes, and the function writes into one of them.
  A graph cannot write through one dtype and read through another.
  Instead: pass tensors that do not share storage, as in x.clone()."""


@dataclass(frozen=True, slots=True)
class Base:
    """One storage that several leaves are views of.

    Attributes:
        slots: The flat slots of the leaves.
        spec: The flat tensor over the whole storage.
        grows: Whether the storage must become larger before that tensor can be made.
        is_written: Whether the graph gives it a new value.
    """

    slots: tuple[int, ...]
    spec: Spec
    grows: bool = False
    is_written: bool = True


def has_storage(leaf: object) -> TypeGuard[torch.Tensor]:
    """Returns whether a leaf has memory that another tensor may share."""
    # A storage without an address is empty, or has no data: nobody can meet there.
    return (
        isinstance(leaf, torch.Tensor)
        and not isinstance(leaf, MetaTensor)
        and leaf.layout is torch.strided
        and leaf.untyped_storage().data_ptr() != 0
    )


def storage_groups(leaves: Sequence[Any]) -> list[tuple[int, ...]]:
    """Finds flat slots that share a storage, each group of two or more."""
    groups: dict[int, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if has_storage(leaf):
            groups.setdefault(leaf.untyped_storage().data_ptr(), []).append(i)
    return [tuple(g) for g in groups.values() if len(g) > 1]


def overlapping_slots(leaves: Sequence[Any]) -> list[tuple[int, ...]]:
    """Finds flat slots whose leaves have ranges of a storage in common, each cluster of two or more."""
    return [cluster for group in storage_groups(leaves) for cluster in _overlapping(leaves, group)]


def bases_of(
    leaves: Sequence[Any],
    written: set[int],
    path_of: Callable[[int], str],
    extents: Mapping[int, int] | None = None,
    reaching: Collection[int] = (),
) -> list[Base]:
    """Finds the bases that a graph needs.

    Leaves of one storage that lie apart stay apart if no two leaves of it overlap. One in which elements share a place
    needs a base, too, and so does one that the graph leaves for other places of its storage.

    Args:
        leaves: The user's leaves.
        written: The flat slots that the graph writes.
        path_of: What a flat slot is called.
        extents: Flat slots that are resized, or of which a view is, and how many elements their storages then have. All
            leaves of such a storage are views of its base.
        reaching: Flat slots of which the graph has a view that reaches other places of the storage. Likewise.

    Raises:
        MutationError: Overlapping leaves have different dtypes.
    """
    bases = []
    extents = extents or {}
    groups = storage_groups(leaves)
    together = {s for group in groups for s in group}
    groups += [(s,) for s in sorted((written | extents.keys() | set(reaching)) - together)]
    for group in groups:
        overlapping = _overlapping(leaves, group) if len(group) > 1 else []
        parts = [c for c in overlapping if written.intersection(c)]
        parts += [(s,) for s in group if s in written and has_internal_overlap(leaves[s])]
        if not extents.keys().isdisjoint(group) or any(s in reaching for s in group):
            parts.append(group)
        if not parts:
            continue
        # All that is written of a storage is in the one base: its new value replaces the whole storage.
        slots = tuple(sorted({s for part in parts for s in part} | written.intersection(group)))
        if len({leaves[s].dtype for s in slots}) > 1:
            raise MutationError(_DTYPES_DIFFER.format(paths=" and ".join(map(path_of, slots))))
        leaf = leaves[slots[0]]
        length = leaf.untyped_storage().nbytes() // leaf.element_size()
        needed = max([length, *(extents.get(s, 0) for s in slots)])
        is_written = not written.isdisjoint(slots) or needed > length
        bases.append(Base(slots, Spec.make((needed,), (1,), 0, leaf.dtype, leaf.device), needed > length, is_written))
    return bases


def has_internal_overlap(leaf: object) -> bool:
    """Returns whether several elements of a leaf are one place in memory. See Note [Internal overlap]."""
    return has_storage(leaf) and Spec.of(leaf).overlaps_itself


def flat_base(leaf: torch.Tensor, grows_to: int = 0) -> torch.Tensor:
    """Makes a one-dimensional tensor over the whole storage of `leaf`, which may have to grow first."""
    storage = leaf.untyped_storage()
    if grows_to:
        storage.resize_(grows_to * leaf.element_size())
    flat = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
    return flat.set_(storage, 0, (storage.nbytes() // leaf.element_size(),), (1,))


def _overlapping(leaves: Sequence[Any], group: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Splits a group where its leaves use disjoint ranges of the storage. Ranges in bytes, first to last."""
    ranges = sorted((*_byte_range(leaves[s]), s) for s in group)
    clusters: list[list[int]] = []
    end = -1
    for first, last, slot in ranges:
        if last <= first:  # it has no elements
            continue
        if first >= end or not clusters:
            clusters.append([])
        clusters[-1].append(slot)
        end = max(end, last)
    return [tuple(sorted(c)) for c in clusters if len(c) > 1]


def _byte_range(leaf: torch.Tensor) -> tuple[int, int]:
    """Returns where a leaf begins in its storage, and where it ends, whatever lies between its elements."""
    spec = Spec.of(leaf)
    return int(spec.offset) * spec.dtype.itemsize, spec.extent * spec.dtype.itemsize
