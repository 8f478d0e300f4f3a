"""Interfaces of a stream: listeners of its operators, and the answers that it may give."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta.operation import Operation, made_at, tell_listeners
from subclass_aot.meta.storage import Storage, add_listener, in_thread, without_listeners

Leaf: TypeAlias = Any
"""A `MetaTensor`: the class is made with what queries are answered by, which cannot name it."""


class Listener:
    """Observes operators and memory, and answers no queries: a profiler, a part of a recorder.

    In a `with` block it is called for each operator on leaves that a program in this thread runs, in whatever stream:
    a trace, forward and backward, `meta()`, or none. A trace that begins again is seen again.

    It is called for each storage once as it is made (or, if it is that of a real tensor, first met), before the call
    for the operator that made it; and once as it dies, which is when the last tensor on it is gone. So it is called for
    the death of storages, too, that are older than the block; and for that of a storage whose birth it was called for,
    if another thread lets it go.
    """

    def on_operator(self, operation: Operation) -> None:
        """Is called after each operator, with the leaves it was given and the ones it made, and where it ran."""

    def on_storage(self, storage: Storage) -> None:
        """Is called when a storage is made; `Storage.of(tensor)` is that of a tensor."""

    def on_resize(self, storage: Storage, before: int) -> None:
        """Is called when the size of a storage has changed, with the bytes that it had before."""

    def on_release(self, storage: Storage) -> None:
        """Is called when a storage dies; it is not to be kept."""

    without_listeners = staticmethod(without_listeners)

    tell = staticmethod(tell_listeners)

    def __enter__(self) -> Any:
        in_thread.listeners = (*in_thread.listeners, self)
        add_listener(self, True)
        return self

    def __exit__(self, *error: object) -> None:
        in_thread.listeners = tuple([other for other in in_thread.listeners if other is not self])
        if not in_thread.listeners:
            made_at.clear()
        add_listener(self, False)


class Values(Protocol):
    """The values of tensors: a `Stream`."""

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Returns the values of a tensor, where they are the same at each call."""

    def lengths(self, tensor: torch.Tensor, most: int) -> torch.Tensor | None:
        """Returns the values of a tensor of lengths of `most` at the most, where they are known or assumed."""

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that the values of a real tensor are the same at each call."""


class Answers(_torch.dispatch.DispatchMode):
    """Queries of a stream, and the answers where it knows nothing."""

    def replaced(self, leaf: Leaf, other: torch.Tensor) -> Leaf | None:
        """Notes that a leaf is given the data of another tensor; returns the traced tensor of that, if there is one."""
        return None

    def value_of(self, leaf: Leaf) -> torch.Tensor | None:
        """Returns the real tensor behind `leaf`, where it is known."""
        return None

    def looks(self, func: Operator, args: tuple[Any, ...]) -> bool:
        """Returns whether an operator that needs values gets those that `look` gives."""
        return False

    def look(self, leaf: Leaf) -> torch.Tensor | None:
        """Returns the values of a leaf in this call, which others then have to have, too."""
        return None

    def known(self, tensor: torch.Tensor, by_looking: bool = True) -> torch.Tensor | None:
        """Returns the values of a tensor, where they are the same at each call.

        Args:
            tensor: The tensor.
            by_looking: Whether the call that is traced may say them, if nothing else does.
        """
        return None

    def lengths(self, tensor: torch.Tensor, most: int) -> torch.Tensor | None:
        """Returns the values of a tensor of lengths, where they are known or assumed.

        Args:
            tensor: The tensor.
            most: What none is longer than.
        """
        return self.known(tensor)

    def elements(self, leaf: Leaf) -> torch.Tensor | None:
        """Returns the values of a leaf that a program reads as a whole, where they are known or assumed."""
        return self.known(leaf) if self.looks(_ITEM, (leaf,)) else None

    def memory(self, leaf: Leaf) -> torch.Tensor | None:
        """Returns a tensor that stands for the memory of a leaf, which a program reads; None if nobody may read it.

        In a trace these are the values of the call, which others then have to have, too.
        """
        return None

    def shown(self, leaf: Leaf, form: str | None) -> torch.Tensor | None:
        """Returns the values of a leaf of which a program asks for the text, where they are known or may be read.

        Args:
            leaf: The leaf.
            form: What it is formatted by; None for `repr`.
        """
        return self.value_of(leaf)

    def on_array(self, leaf: Leaf, array: object) -> None:
        """Is called when a program gets what a leaf has in memory as an array, which is a copy."""

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that a real tensor, which an operator gave, has the same values at each call, and gives it back."""
        return tensor


_aten = torch.ops.aten
_ITEM = _aten._local_scalar_dense.default
