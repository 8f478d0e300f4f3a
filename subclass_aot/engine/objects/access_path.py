"""Access paths: how generated code gets to an object that a walk met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from subclass_aot.engine.tables import Table


class Named(NamedTuple):
    """An object of the call that is the same at each: a module, or what the function holds, by its path."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """An object that is the same at each call, and that no path of the call leads to: a class, or a function of one."""

    value: object


class Entry(NamedTuple):
    """The value at a key of a table of another object, which is known by its position.

    Attributes:
        holder: The position of that object.
        table: Which of its tables.
        key: The key; in an outcome, a recipe for one that is a tensor or an object, and so another one at each call.
    """

    holder: int
    table: Table
    key: Any


class AccessPath(NamedTuple):
    """A path by which generated code gets to an object.

    Attributes:
        start: A name in generated code, such as `args`; or an object of the call or another one, or an entry of one.
        steps: Positions and attributes from there, such as those of tuples on the way, or `REFERENT`.
    """

    start: str | Named | Pinned | Entry
    steps: tuple[int | str, ...] = ()

    def then(self, step: int | str) -> AccessPath:
        """Goes one step further."""
        return AccessPath(self.start, (*self.steps, step))
