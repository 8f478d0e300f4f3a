"""The rooms of the house: who imports whom, and through which door."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "subclass_aot"
FILES = sorted(PACKAGE.rglob("*.py"))


def _floors() -> dict[str, int]:
    """The floor of each room, as the documentation has it."""
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", (ROOT / "docs" / "rooms.md").read_text(), re.MULTILINE)
    found = [(name, int(floor)) for floor, names in rows for name in names[1:-1].split("`, `")]
    return {name.rstrip("/").removesuffix(".py"): floor for name, floor in found}


def _room(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """The modules of this package that a file imports from, each with a name that it takes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "subclass_aot":
            yield from ((node.module, alias.name) for alias in node.names)


def _rooms_of(path: Path) -> Iterator[tuple[str, str, str]]:
    """For each import: the room it is taken from, the module below it, and the name."""
    for module, name in _imports(path):
        _, *below = module.split(".")
        yield (below[0], ".".join(below[1:]), name) if below else (name, "", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    floors = _floors()
    here = _room(path.relative_to(PACKAGE).parts)
    if here in floors:
        upward = {room for room, _, _ in _rooms_of(path) if room != here and floors.get(room, -1) >= floors[here]}
        assert not upward


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_is_entered_by_its_door(path: Path) -> None:
    """From outside, names are taken of the room and not of a file in it; of `_torch` by subject, which is a file."""
    here = _room(path.relative_to(PACKAGE).parts)
    taken = [(room, file, name) for room, file, name in _rooms_of(path) if room not in (here, "_torch") and file]
    assert not taken


def test_every_room_has_a_floor() -> None:
    rooms = {_room(path.relative_to(PACKAGE).parts) for path in FILES if (path.parent / "__init__.py").exists()}
    aside = {"__init__", "__main__", "_native", "_version_check", "inspection", "satellites", "tensors"}
    assert rooms - aside == set(_floors())


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
    rooms = [
        path.parent for path in FILES if path.name == "__init__.py" and path.parent not in (PACKAGE, PACKAGE / "_torch")
    ]
    counts = {str(room.relative_to(PACKAGE)): len(_names_of_door(room)) for room in rooms}
    assert {room: count for room, count in counts.items() if count > MOST_NAMES} == {}
