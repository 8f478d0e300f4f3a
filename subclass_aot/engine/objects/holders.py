"""Notes of a walk on tensors, on objects that hold others, and on what it cannot walk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from subclass_aot.engine.objects.access_path import AccessPath, Entry
from subclass_aot.engine.objects.nodes import Node
from subclass_aot.engine.tables import CONTAINERS, Table

Entries = list[tuple[object, Node]]
"""What a table holds: at each key, a node. A key that is a tensor is a `TensorAt`, any other stands for itself."""


class HeldTensor(NamedTuple):
    """A tensor that the walk met.

    Attributes:
        tensor: It.
        path: Where the user finds it.
        pinned: Whether only objects that are the same at each call lead there.
        is_number: Whether it stands for a number. See `sized`.
        of_generator: Whether it is the state of a generator of random numbers, and so another one at each call.
    """

    tensor: torch.Tensor
    path: str
    pinned: bool
    is_number: bool = False
    of_generator: bool = False


class Watched(NamedTuple):
    """An array of numpy, a generator of random numbers or the like.

    Attributes:
        path: Where the user finds it.
        value: It.
        state: What it held when the walk met it.
    """

    path: str
    value: object
    state: Any


@dataclass(slots=True, eq=False)
class Holder:
    """An object that holds others.

    Attributes:
        path: Where the user finds it.
        value: The object.
        access_path: How generated code gets there. For a tensor it is one of the places where it stands.
        tables: What it holds, table by table.
        only_grows: Whether it is a list to which closures append, and with which they do nothing else. Then what stands
            in it is no part of the signature, and it may be longer at each call.
        pinned: Whether it is the same object at each call: the function holds it, or it is a module.
    """

    path: str
    value: Any
    access_path: AccessPath
    pinned: bool
    tables: list[tuple[Table, Entries]] = field(default_factory=list)
    only_grows: bool = False

    @property
    def parent(self) -> int | None:
        """The position of the object that it was first reached from, None for a root."""
        return self.access_path.start.holder if isinstance(self.access_path.start, Entry) else None

    @property
    def is_value(self) -> bool:
        """True if it is a number or a text with slots: what it is beside these, only it has."""
        return isinstance(self.value, int | float | complex | str | bytes | frozenset)

    @property
    def is_bare(self) -> bool:
        """True if it is an object that holds nothing: a program may use it for what it is."""
        return type(self.value) not in CONTAINERS and not any(entries for _, entries in self.tables)
