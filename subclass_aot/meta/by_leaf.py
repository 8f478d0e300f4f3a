"""Notes on leaves, for as long as these live."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import optree

from subclass_aot.meta.tensor import MetaTensor


class ByLeaf(dict[int, tuple["weakref.ref[MetaTensor]", Any]]):
    """By `id`, something for each of some leaves, for as long as the leaf lives."""

    def of(self, leaf: MetaTensor) -> Any:
        """Returns what was noted of a leaf, or None."""
        found = self.get(id(leaf))
        return None if found is None else found[1]

    def note(self, leaf: MetaTensor, value: object) -> None:
        """Notes something of a leaf."""
        key = id(leaf)
        self[key] = weakref.ref(leaf, lambda _: self.pop(key, None)), value

    def forget(self, which: Callable[[MetaTensor], bool]) -> None:
        """Forgets what was noted of some leaves."""
        for key, (reference, _) in list(self.items()):
            leaf = reference()
            if leaf is None or which(leaf):
                self.pop(key, None)


def leaves_of(tree: Any) -> list[MetaTensor]:
    """Returns the leaves in a tree."""
    return [x for x in optree.tree_leaves(tree, none_is_leaf=True) if type(x) is MetaTensor]
