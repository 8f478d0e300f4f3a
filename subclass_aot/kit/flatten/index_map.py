"""The two spaces of positions, outer values and flat slots, and the only arithmetic between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from subclass_aot.kit.flatten.metas import (
    AbsentMeta,
    ContainerMeta,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    ValueMeta,
)

Kind: TypeAlias = Literal["leaf", "size", "stride", "opaque"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One position of the flat list.

    Args:
        flat: The position.
        outer: The position of the value it comes from.
        path: The steps from the value to the tensor it belongs to: `(".weight", ".codes")`.
        kind: A `"leaf"`, an `"opaque"` inner value, or a symbolic `"size"` or `"stride"` of the wrapper at `path`.
        dim: The dimension, for a size or stride.
        meta: For a leaf or an opaque value, what it is planned to be.

    >>> str(Slot(3, 2, (".weight",), "size", 0))
    'args[2].weight.size(0)'
    """

    flat: int
    outer: int
    path: tuple[str, ...]
    kind: Kind
    dim: int | None = None
    meta: PlainTensorMeta | OpaqueMeta | None = None

    def name(self, where: str = "args") -> str:
        """Returns the slot as an expression on the list called `where`."""
        call = "" if self.dim is None else f".{self.kind}({self.dim})"
        return f"{where}[{self.outer}]{''.join(self.path)}{call}"

    def __str__(self) -> str:
        return self.name()


@dataclass(frozen=True)
class IndexMap:
    """The flat slots of each outer value, and what each of them is.

    Args:
        slots: Every flat slot, in flat order.
        ranges: For each outer value, its flat positions.

    >>> import torch
    >>> from subclass_aot.tensors import TwoTensor
    >>> from subclass_aot.kit.flatten import create_subclass_meta
    >>> x = torch.ones(2)
    >>> index_map = IndexMap.of(create_subclass_meta([x, TwoTensor(x, x)]))
    >>> [str(slot) for slot in index_map.slots]
    ['args[0]', 'args[1].a', 'args[1].b']
    >>> index_map.flat_of(1), index_map.outer_of(2), index_map.at(1, ".b").flat
    (range(1, 3), 1, 2)
    """

    slots: tuple[Slot, ...]
    ranges: tuple[range, ...]

    @classmethod
    def of(cls, metas: Iterable[ValueMeta]) -> IndexMap:
        """Returns the map for a list of values, given their metas."""
        slots: list[Slot] = []
        ranges = []
        for outer, meta in enumerate(metas):
            start = len(slots)
            for path, kind, dim, part in _parts(meta, ()):
                slots.append(Slot(len(slots), outer, path, kind, dim, part))
            ranges.append(range(start, len(slots)))
        return cls(tuple(slots), tuple(ranges))

    def flat_of(self, outer: int) -> range:
        """Returns the flat positions of one outer value."""
        return self.ranges[outer]

    def outer_of(self, flat: int) -> int:
        """Returns the outer value that one flat position belongs to."""
        return self.slots[flat].outer

    def at(self, outer: int, *path: str, kind: Kind | None = None, dim: int | None = None) -> Slot:
        """Returns the slot at the end of a path, by default the tensor or opaque value itself.

        Raises:
            KeyError: There is no such slot.
        """
        for flat in self.ranges[outer]:
            slot = self.slots[flat]
            if slot.path == path and slot.dim == dim and kind in (None, slot.kind):
                return slot
        raise KeyError(f"args[{outer}]{''.join(path)} has no slot of its own")

    def of_kind(self, kind: Kind) -> list[int]:
        """Returns the flat positions of one kind."""
        return [slot.flat for slot in self.slots if slot.kind == kind]

    def to_flat(self, outers: Iterable[int]) -> list[int]:
        """Returns every flat position of the given outer values, in the order given: leaves, sizes, strides and
        opaque ones.
        """
        return [flat for outer in outers for flat in self.ranges[outer]]

    def to_outer(self, flats: Iterable[int]) -> list[int]:
        """Returns the outer values that the given flat positions belong to: each once, ascending."""
        return sorted({self.slots[flat].outer for flat in flats})

    def written(self, mutated: Iterable[int], mutated_leaves: Iterable[int]) -> list[int]:
        """Returns the flat positions really written, among those of the mutated outer values: ascending.

        Args:
            mutated: Outer positions of mutated values.
            mutated_leaves: Flat positions that were seen to be written.
        """
        outers = set(mutated)
        return sorted({flat for flat in mutated_leaves if self.slots[flat].outer in outers})


def flat_starts(metas: Sequence[Any]) -> list[int]:
    """Returns where the slots of each value start, and last the number of all slots."""
    starts = [0]
    for meta in metas:
        starts.append(starts[-1] + getattr(meta, "arg_count", 1))
    return starts


_Part: TypeAlias = tuple[tuple[str, ...], Kind, int | None, PlainTensorMeta | OpaqueMeta | None]


def _parts(meta: InnerMeta, path: tuple[str, ...]) -> Iterator[_Part]:
    """Yields path, kind, dimension and meta of each slot, in flat order. See Note [Leaf order]."""
    if isinstance(meta, AbsentMeta):
        return
    if isinstance(meta, PlainTensorMeta | OpaqueMeta):
        yield path, "leaf" if isinstance(meta, PlainTensorMeta) else "opaque", None, meta
        return
    if isinstance(meta, ContainerMeta):
        for key, inner in meta.items.items():
            yield from _parts(inner, (*path, meta.step(key)))
        return
    for name, inner in meta.attrs.items():
        yield from _parts(inner, (*path, meta.step(name)))
    if meta.included_subclass_symints:
        yield from ((path, "size", dim, None) for dim in meta.symbolic_sizes)
        yield from ((path, "stride", dim, None) for dim in meta.symbolic_strides)
