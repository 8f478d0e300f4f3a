"""Lazy conjugation and negation, which a trace computes at once: what eager would have changed with a write.

`x.conj()` is a view of `x` in eager mode, and a tensor of its own in a graph. Reading one after the other was written
would be wrong in silence, so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import MutationError
from subclass_aot.graph.listeners.listener import GraphListener
from subclass_aot.meta import MetaTensor, Storage

if TYPE_CHECKING:  # which has this listener
    from subclass_aot.graph.recorder import Recorder

_LAZY_VIEW_WRITTEN = """A tensor is conjugated or negated lazily, as in x.conj(), and one of the two is written.
  Your line:  {line}
  The tensor: {shape}
  In eager mode the two share memory, so that the other one changes, too; in a graph they do not.
  Instead: write into a copy, as in x.conj().resolve_conj().clone(), or write into x itself before it is conjugated."""


class LazyViews(GraphListener):
    """Notes which storages were computed where eager has a lazy view, and what was written of those."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Storage, Storage]] = []  # what is a view in eager, behind its source
        self._stale: set[Storage] = set()

    def fork(self) -> LazyViews:
        views = LazyViews()
        views._pairs, views._stale = list(self._pairs), set(self._stale)
        return views

    def on_lazy_view(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        if type(source) is MetaTensor and type(copy) is MetaTensor:
            self._pairs.append((Storage.of(source), Storage.of(copy)))

    def stand_for(self, storage: Storage) -> bool:
        """Returns whether a storage was computed where eager has a lazy view."""
        return any(copy is storage for _, copy in self._pairs)

    def on_operator(
        self,
        recorder: Recorder,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if self._stale:
            self.refuse_stale(*args, *kwargs.values())

    def on_write(self, recorder: Recorder, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        written = Storage.of(leaf)
        for source, copy in self._pairs:
            if written is source:
                self._stale.add(copy)
            elif written is copy:
                if source.tag.op == "placeholder":
                    raise MutationError(_LAZY_VIEW_WRITTEN.format(line=user_line(), shape=repr(source.spec)))
                self._stale.add(source)

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
