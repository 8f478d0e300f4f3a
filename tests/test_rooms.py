"""The rooms of the house: who imports whom, and through which door."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

from tests import house

PACKAGE = house.ROOT / house.NAME
FILES = sorted(PACKAGE.rglob("*.py"))


PAST_DOORS = {f"ranks.{name}" for name in ("collectives", "placements", "sharding")}
"""Modules that take names of files in `kit/wrapper/`: they serve operators, as these files do, which have no door."""


def test_rooms_have_no_circles() -> None:
    after: dict[str, set[str]] = defaultdict(set)
    for importer, imported in house.arrows():
        here, there = house.room_of(importer), house.room_of(imported)
        if here and there and here != there:
            after[here].add(there)
    assert list(TopologicalSorter(after).static_order())  # or an error, which has the circle


def test_a_room_is_entered_by_its_door() -> None:
    """From outside, names are taken of the room and not of a file in it; of `_torch` by subject, which is a file."""
    past = []
    for module in house.modules().keys() - PAST_DOORS:
        here = house.room_of(module)
        taken = {source for source in house.sources_of(module) if source and source not in house.rooms()}
        past += [(module, source) for source in taken if house.room_of(source) not in (here, "base._torch")]
    assert not past


def test_every_module_is_in_a_room() -> None:
    assert {module for module in house.modules() if not house.room_of(module)} == {"", *LAYERS}
    assert {room for room in house.rooms() if room not in house.modules()} == set()


LAYERS = {"base", "cost", "doors", "engine", "kit"}
"""Folders that have rooms only."""


MOST_NAMES = 15
"""So many names a room may give to others: with more it has no subject, or asks its neighbours to do its work."""


def _names_of_door(room: Path) -> set[str]:
    """The names that others may take of a room: imported in its `__init__`, or defined there."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((room / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            names.update(
                alias.asname or alias.name for alias in node.names if (node.module or "").startswith(PACKAGE.name)
            )
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return {name for name in names if not name.startswith("_")}


def test_doors_are_narrow() -> None:
    """`_torch` has no limit: its door has the subjects, of which torch has as many as it has."""
    without = (PACKAGE, PACKAGE / "base" / "_torch")
    rooms = [path.parent for path in FILES if path.name == "__init__.py" and path.parent not in without]
    counts = {str(room.relative_to(PACKAGE)): len(_names_of_door(room)) for room in rooms}
    assert {room: count for room, count in counts.items() if count > MOST_NAMES} == {}
