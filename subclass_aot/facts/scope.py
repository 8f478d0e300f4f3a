"""Scopes: which facts of another call count for a signature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from subclass_aot.flatten import ContainerMeta, InnerMeta, SubclassCreationMeta
from subclass_aot.signature import JointSignature


class Scope(NamedTuple):
    """The facts of a call that count. Which tensors share memory, say, makes no difference to a program that writes
    nothing.

    The default is all of it.

    Attributes:
        views: Where the user finds tensors that stand for views of an input. See Note [Views of one tensor].
        writes: Whether a call writes data of its inputs.
        bases: The leaves that share a storage which the graph replaces as a whole, by their numbers.
        seen_by_autograd: The positions of inputs whose writes autograd sees; None for all of them.
        differentiates: Whether autograd is on in the program, or after it.
        lists: Whether a call changes lists or dicts.
        written: The paths of objects into which the program puts something.
        absent: The positions of tensors of whose attributes only a few count, and these. See Note [Absent attributes].
        offsets: The wrappers of which it counts where they say that they begin: positions, and paths from there; None
            for all of them. Results that are made like one have its beginning, if that is not zero.
    """

    views: tuple[str, ...] = ()
    writes: bool = True
    bases: tuple[tuple[int, ...], ...] = ()
    seen_by_autograd: tuple[int, ...] | None = None
    differentiates: bool = True
    lists: bool = True
    written: tuple[str, ...] = ()
    absent: tuple[tuple[int, tuple[str, ...]], ...] = ()
    offsets: tuple[tuple[int, str], ...] | None = None

    @staticmethod
    def of(signature: JointSignature) -> Scope:
        """Reads it off a signature."""
        mutations, changes = signature.mutations, signature.changes
        return Scope(
            views=tuple(signature.views),
            writes=mutations.mutates_data,
            bases=tuple(tuple(signature.leaf_numbers[slot] for slot in base.slots) for base in mutations.bases),
            seen_by_autograd=tuple(mutations.under_autograd),
            differentiates=signature.grad_modes[0] or signature.needs_backward,
            lists=any(change.table.kind in ("elements", "items") for change in changes),
            absent=tuple((position, names) for position, names in signature.assumptions.absent),
            offsets=tuple(_that_begin_later(signature)),
            written=tuple(sorted({change.path for change in changes})),
        )

    @staticmethod
    def read(written: Sequence[object]) -> Scope:
        """Makes it of what JSON has of one."""
        return Scope(*(_frozen(part) for part in written))  # type: ignore[arg-type]


def _that_begin_later(signature: JointSignature) -> Iterator[tuple[int, str]]:
    ahead: list[tuple[int, str, InnerMeta]] = [(i, "", given.meta) for i, given in enumerate(signature.inputs)]
    while ahead:
        position, path, meta = ahead.pop()
        if isinstance(meta, SubclassCreationMeta):
            if meta.storage_offset:
                yield position, path
            ahead += [(position, path + meta.step(name), part) for name, part in meta.attrs.items()]
        elif isinstance(meta, ContainerMeta):
            ahead += [(position, path + meta.step(key), part) for key, part in meta.items.items()]


def _frozen(part: object) -> object:
    return tuple(map(_frozen, part)) if isinstance(part, list | tuple) else part
