"""Scopes: which facts of another call count for a signature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from subclass_aot.base.plain_values import frozen
from subclass_aot.engine.signature import JointSignature
from subclass_aot.kit.flatten import ContainerMeta, InnerMeta, SubclassCreationMeta
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import Symbols, is_symbolic, plain


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
        absent: The paths of tensors of whose attributes only a few count, and these. See Note [Absent attributes].
        beginnings: The tensors of which it counts where they begin, by their positions and the paths from there: those
            of which the program reads it, and wrappers that begin later than at zero, as results do that are made like
            one. None for all wrappers.
        data: The leaves of which the values count, by their numbers.
        places: The sizes and strides that are symbols, such as `args[0].size(1)`, each with its text.
        assumptions: What was assumed of these symbols.
        settings: The settings of torch that count, since the program reads them.
        numbers: The paths of numbers of Python that are symbols.
    """

    # More than ten attributes: each is one thing that counts for some programs, and a file has them as one list.
    views: tuple[str, ...] = ()
    writes: bool = True
    bases: tuple[tuple[int, ...], ...] = ()
    seen_by_autograd: tuple[int, ...] | None = None
    differentiates: bool = True
    lists: bool = True
    written: tuple[str, ...] = ()
    absent: tuple[tuple[str, tuple[str, ...]], ...] = ()
    beginnings: tuple[tuple[int, str], ...] | None = None
    data: tuple[int, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @staticmethod
    def of(signature: JointSignature) -> Scope:
        """Reads it off a signature."""
        mutations, changes, assumed = signature.mutations, signature.changes, signature.assumptions
        paths = [*(given.path for given in signature.inputs), *signature.views]
        places = {} if assumed.symbols is None else _symbolic_places(signature, assumed.symbols)
        begins = {(position, path) for position, path, _ in assumed.beginnings}
        return Scope(
            views=tuple(signature.views),
            writes=mutations.mutates_data,
            bases=tuple(tuple(signature.leaf_numbers[slot] for slot in base.slots) for base in mutations.bases),
            seen_by_autograd=tuple(mutations.under_autograd),
            differentiates=signature.grad_modes[0] or signature.needs_backward,
            lists=any(change.table.kind in ("elements", "items") for change in changes),
            absent=tuple([(paths[position], names) for position, names in assumed.absent]),
            beginnings=tuple(sorted(begins.union(_that_begin_later(signature)))),
            data=tuple(signature.leaf_numbers[slot] for slot, _ in assumed.read),
            places=tuple(places.items()),
            assumptions=() if assumed.symbols is None else _assumptions(assumed.symbols, places.values()),
            written=tuple(sorted({change.path for change in changes})),
            settings=assumed.settings,
            numbers=assumed.numbers,
        )

    @staticmethod
    def read(written: Sequence[object]) -> Scope:
        """Makes it of what JSON has of one."""
        return Scope(*map(frozen, written))


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


def _symbolic_places(signature: JointSignature, symbols: Symbols) -> dict[str, str]:
    """Returns every size and stride of the inputs that is a symbol or made of symbols, by its place, with its text.

    Where the context of a wrapper repeats one, that place is named, too. See Note [Sizes in contexts].
    """
    found: dict[str, Any] = {}
    patterns = [pattern for given in signature.inputs for pattern in given.specs]
    for slot, pattern in zip(signature.index_map.slots, patterns, strict=True):
        path = signature.path_of(slot.flat)
        if isinstance(pattern, Spec):
            found.update({f"{path}.size({dim})": n for dim, n in enumerate(pattern.size)})
            found.update({f"{path}.stride({dim})": n for dim, n in enumerate(pattern.stride)})
        elif slot.dim is not None:
            found[f"{path}.{slot.kind}({slot.dim})"] = pattern
    texts = {place: symbols.text(n) for place, n in found.items() if is_symbolic(plain(n))}
    for given in signature.inputs:
        if isinstance(given.meta, SubclassCreationMeta):
            texts.update(given.meta.symbolic_places(given.path))
    return texts


def _assumptions(symbols: Symbols, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple([text for text, _ in symbols.assumptions({text for text in texts if text.isidentifier()})])
