"""Finds objects that Python's collector was told to leave alone (`gc.freeze`), as a server does before it forks.

They are in no list of the collector's, and it finds no referrers among them. Found are those that modules of programs
lead to: by their globals, classes, and containers there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from subclass_aot.base.shown_type import modules_of_programs

_DEPTH = 4
"""The globals of a module, a dict of classes in them, and the dict of a class."""
_HOLDERS = (dict, list, tuple, set, type, staticmethod, classmethod, property)


def left_alone(kind: type) -> Iterator[Any]:
    """Yields objects of exactly a class that the collector leaves alone, and perhaps others; none where there are none.

    Args:
        kind: The class.
    """
    if gc.get_freeze_count():
        yield from reached(modules_of_programs(), kind)


def reached(modules: Sequence[dict[str, Any]], kind: type) -> Iterator[Any]:
    """Yields objects of exactly a class that modules lead to.

    Args:
        modules: Their globals.
        kind: The class.
    """
    seen: set[int] = set()
    level: list[Any] = [*modules]
    for _ in range(_DEPTH):
        inside = [x for x in gc.get_referents(*level) if id(x) not in seen] if level else []
        seen.update(map(id, inside))
        yield from (each for each in inside if type(each) is kind)
        level = [x for x in inside if isinstance(x, _HOLDERS)]
