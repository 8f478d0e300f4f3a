"""Lazy conjugation and negation, which a trace computes at once: what eager would have changed with a write.

`x.conj()` is a view of `x` in eager mode, and a tensor of its own in a graph. Reading one after the other was written
would be wrong in silence, so it is refused. Where one is a result, the graph gives out what it is a view of, and the
call sets the bit: `is_conj()` says what it says in eager mode.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import PHYSICAL
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.errors import MutationError
from subclass_aot.kit.views import regenerated_view
from subclass_aot.meta import MetaTensor, Spec, Storage

_LAZY_VIEW_WRITTEN = """A tensor is conjugated or negated lazily, as in x.conj(), and one of the two is written.
  Your line:  {line}
  The tensor: {shape}
  In eager mode the two share memory, so that the other one changes, too; in a graph they do not.
  Instead: write into a copy, as in x.conj().resolve_conj().clone(), or write into x itself before it is conjugated."""


_BITS: dict[Any, str] = dict(zip(PHYSICAL.values(), ("conj", "neg"), strict=True))
"""What eager sets in the place of an operator that was recorded."""


class _Copy(NamedTuple):
    """What was computed in the place of a lazy view: the specs of both, and the bit of the view."""

    source: Spec
    spec: Spec
    bit: str


def _same_part(part: Spec, source: MetaTensor, copy: Spec) -> MetaTensor | None:
    """Returns the part of `source` that another tensor is of its copy; None if they lie in another way."""
    if part.solver is not None or copy.solver is not None or source.meta_spec.stride != copy.stride:
        return None
    with torch.no_grad():
        whole = source.detach()
        whole = whole if part.dtype is whole.dtype else torch.view_as_real(whole)
        if part.dtype is not whole.dtype:
            return None
        size, stride = map(int, part.size), map(int, part.stride)
        view: Any = regenerated_view(whole, tuple(size), tuple(stride), int(part.offset))
        return view  # type: ignore[no-any-return]


class LazyViews(GraphListener):
    """Notes which storages were computed where eager has a lazy view, and what was written of those."""

    goes_on = True

    def __init__(self) -> None:
        self._pairs: list[tuple[Storage, Storage]] = []  # what is a view in eager, behind its source
        self._sources: dict[Storage, MetaTensor] = {}  # by what was computed of them
        self.copies: dict[Storage, _Copy] = {}  # what was computed, where it is known how
        self._stale: set[Storage] = set()

    def fork(self) -> LazyViews:
        views = LazyViews()
        views._pairs, views._stale = list(self._pairs), set(self._stale)
        views._sources, views.copies = dict(self._sources), dict(self.copies)
        return views

    def collections(self) -> list[Collection[Any]]:
        return [self._sources, self._sources.values()]

    def note(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """Notes that `copy` was computed, and eager has a view of `source`."""
        if type(source) is not MetaTensor or type(copy) is not MetaTensor:
            return
        memory = Storage.of(copy)
        self._pairs.append((Storage.of(source), memory))
        bit = _BITS.get(getattr(copy.meta_tag, "target", None))
        if bit is not None:
            self._sources[memory] = source
            self.copies[memory] = _Copy(source.meta_spec, copy.meta_spec, bit)

    def source_of(self, leaf: MetaTensor) -> tuple[MetaTensor, tuple[str, ...]] | None:
        """Returns of what eager has a lazy view in the place of a leaf, and the bits that this has, in order.

        Returns:
            None if that is no lazy view, or if it is not known where the view lies in the memory of its source.

        Raises:
            MutationError: The leaf, or what it is a lazy view of, was written since.
        """
        copy = self.copies.get(Storage.of(leaf))
        if copy is None:
            return None
        self.refuse_stale(leaf)
        source = self._sources[Storage.of(leaf)]
        bits: tuple[str, ...] = (copy.bit,)
        if not source.meta_spec.equals(copy.source):  # it was changed in place since
            return None
        if not leaf.meta_spec.equals(copy.spec):
            is_part = leaf.dtype is not source.dtype  # the real part of complex numbers, or the imaginary one
            part = _same_part(leaf.meta_spec, source, copy.spec)
            if part is None or is_part and copy.bit != "conj":
                return None
            source = part
            if is_part:
                bits = ("neg",) * (int(leaf.meta_spec.offset) % 2)
        if Storage.of(source) not in self.copies:
            return source, bits
        before = self.source_of(source)
        return None if before is None else (before[0], before[1] + bits)

    def stand_for(self, storage: Storage) -> bool:
        """Returns whether a storage was computed where eager has a lazy view."""
        return any(copy is storage for _, copy in self._pairs)

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if self._stale:
            self.refuse_stale(*args, *kwargs.values())

    def on_write(self, recorder: Tape, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        written = Storage.of(leaf)
        for source, copy in self._pairs:
            if written is source:
                self._stale.add(copy)
            elif written is copy:
                if source.tag.op == "placeholder":
                    raise MutationError(_LAZY_VIEW_WRITTEN.format(line=user_line(), shape=repr(source.spec)))
                self._stale.add(source)

    def on_computed(self, recorder: Tape, values: Collection[object]) -> None:
        self.refuse_stale(*values)

    def refuse_stale(self, *values: object) -> None:
        """Refuses to read what eager would have changed.

        Args:
            *values: Leaves, or lists of them; nothing else counts.

        Raises:
            MutationError: One of them, or what it is a lazy view of, was written since.
        """
        for value in values:
            for leaf in value if isinstance(value, list | tuple) else (value,):
                if type(leaf) is MetaTensor and Storage.of(leaf) in self._stale:
                    raise MutationError(_LAZY_VIEW_WRITTEN.format(line=user_line(), shape=repr(leaf.meta_spec)))
