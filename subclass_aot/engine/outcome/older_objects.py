"""Separates objects that are older than a trace from new ones (by `gc.freeze`)."""

from __future__ import annotations

import gc
from typing import Any, Self

from subclass_aot.base.put_back import PutBack
from subclass_aot.base.tricks import is_on

_MANY = 100_000
"""So many new objects are rather all of a program, whose user has told the collector to see them again."""


class OlderObjects(PutBack):
    """Finds which objects are older than a block. It is queried in the block.

    Python's collector leaves them alone until the end of the block (`gc.freeze`), and so lists those alone that are
    new. A list of all would cost more the more the program has. Where the user told it so already, that lists what is
    newer than that, and the collector is not asked again: it counts what it leaves alone one by one.

    Attributes:
        users_are_left_alone: Whether the user has told the collector so.
    """

    users_are_left_alone = False

    def __init__(self) -> None:
        self._leaves_alone = False
        self._before: list[Any] = []
        self._new: set[int] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        if not self.users_are_left_alone and gc.get_freeze_count():
            OlderObjects.users_are_left_alone = True
        self._leaves_alone = not self.users_are_left_alone and is_on("gc.freeze")
        if self._leaves_alone:
            gc.freeze()
        else:  # kept alive, since a new one might get the id of one that is gone
            self._before = gc.get_objects()
            if len(self._before) > _MANY and not gc.get_freeze_count():  # which counts nothing, and is fast
                OlderObjects.users_are_left_alone = False
        return self

    def put_back(self) -> None:
        """Has the collector see what is older again."""
        if self._leaves_alone:
            gc.unfreeze()
        self._before, self._new = [], None

    def forget(self) -> None:
        """Has what was made by now found anew at the next query."""
        self._new = None

    def __contains__(self, value: object) -> bool:
        if self._new is None:  # the first query, when all that the function made is there
            self._new = set(map(id, gc.get_objects())) - set(map(id, self._before))
        return id(value) not in self._new
