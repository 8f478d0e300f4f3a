"""Notes on leaves, for as long as these live."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import optree

from subclass_aot.meta import MetaTensor, Storage


class ByLeaf(dict[int, tuple["weakref.ref[MetaTensor]", Any]]):
    """By `id`, something for each of some leaves, for as long as the leaf lives."""

    def __init__(self) -> None:
        super().__init__()
        self._sharing: dict[int, set[int]] = {}  # by the id of a storage, the ids of the leaves that have it

    def of(self, leaf: MetaTensor) -> Any:
        """Returns what was noted of a leaf, or None."""
        found = self.get(id(leaf))
        return None if found is None else found[1]

    def note(self, leaf: MetaTensor, value: object) -> None:
        """Notes something of a leaf."""
        key, storage = id(leaf), id(Storage.of(leaf))

        def forget(_: object) -> None:
            self.pop(key, None)
            sharing = self._sharing.get(storage)
            if sharing is not None:
                sharing.discard(key)
                if not sharing:
                    del self._sharing[storage]

        self[key] = weakref.ref(leaf, forget), value
        self._sharing.setdefault(storage, set()).add(key)

    def sharing(self, storage: Storage) -> list[tuple[MetaTensor, Any]]:
        """Returns the leaves that have a storage, and what was noted of each."""
        found = [self.get(key) for key in self._sharing.get(id(storage), ())]
        return [(leaf, each[1]) for each in found if each is not None and (leaf := each[0]()) is not None]

    def forget(self, leaves: Iterable[MetaTensor]) -> None:
        """Forgets what was noted of some leaves, and of all that share memory with them."""
        for leaf in leaves:
            for key in (id(leaf), *self._sharing.pop(id(Storage.of(leaf)), ())):
                self.pop(key, None)


def leaves_of(tree: Any) -> list[MetaTensor]:
    """Returns the leaves in a tree."""
    return [x for x in optree.tree_leaves(tree, none_is_leaf=True) if type(x) is MetaTensor]
