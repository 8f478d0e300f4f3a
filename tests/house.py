"""The house as a drawing: which module imports which, and how; and which layer each belongs to.

`python -m tests.house` prints circles, and the arrows that run upward.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
NAME = "subclass_aot"

Kind = Literal["run", "lazy", "type"]
"""When a module is imported: with the importer, when a function runs (or by a name in a text), or by type checkers."""

KINDS: tuple[Kind, ...] = ("run", "lazy", "type")

Arrow = tuple[str, str]
"""The importer, and what it imports: names of modules below the package."""


@cache
def modules() -> Mapping[str, Path]:
    """Returns the files of the package by the names of their modules, "" being the package itself."""
    found = {}
    for path in sorted((ROOT / NAME).rglob("*.py")):
        parts = path.relative_to(ROOT / NAME).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


def _below(name: str) -> str | None:
    """Returns a name below the package; None if it is another's."""
    return name.removeprefix(NAME).removeprefix(".") if name == NAME or name.startswith(f"{NAME}.") else None


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "TYPE_CHECKING" for n in ast.walk(node.test)
    )


def _taken(node: ast.AST, kind: Kind) -> Iterator[tuple[str, str, Kind]]:
    """Yields the modules that the code in a node imports, each with the name that it takes, and when."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and (module := _below(child.module or "")) is not None:
            yield from ((module, alias.name, kind) for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from ((module, "", kind) for alias in child.names if (module := _below(alias.name)) is not None)
        elif isinstance(child, ast.If) and _is_for_types(child):
            yield from _taken(ast.Module(child.body, []), "type")
            yield from _taken(ast.Module(child.orelse, []), kind)
        else:
            is_later = kind == "run" and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _taken(child, "lazy" if is_later else kind)


def _named_in_texts(module: str) -> Iterator[str]:
    """Yields the modules whose whole name is a text in a module."""
    for node in ast.walk(_tree(module)):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if (named := _below(text)) and named in modules():
            yield named


def sources_of(module: str) -> set[str]:
    """Returns the modules that the code of a module takes names of, as it has them: doors, not what is behind."""
    taken = _taken(_tree(module), "run")
    return {inside if (inside := f"{source}.{name}".lstrip(".")) in rooms() else source for source, name, _ in taken}


@cache
def rooms() -> frozenset[str]:
    """Returns the modules that are rooms: those that the documentation lists, and each subject."""
    listed = re.findall(r"^\| `([\w/]+?)(?:/|\.py)` \|", (ROOT / "docs" / "rooms.md").read_text(), re.MULTILINE)
    subjects = (module for module in modules() if module.startswith("subjects.") and module.count(".") == 1)
    return frozenset({*(each.replace("/", ".") for each in listed), *subjects})


def room_of(module: str) -> str:
    """Returns the room that a module is in: the longest of which the name begins its own; "" of the face."""
    return max((room for room in rooms() if f"{module}.".startswith(f"{room}.")), key=len, default="")


def _defining(module: str, name: str) -> str:
    """Returns the module in which what one gives by a name is defined, behind the doors of rooms."""
    inside = f"{module}.{name}".lstrip(".")
    if inside in modules():
        return inside
    if modules()[module].name == "__init__.py":
        for node in _tree(module).body:
            if isinstance(node, ast.ImportFrom) and (source := _below(node.module or "")) is not None:
                for alias in node.names:
                    if (alias.asname or alias.name) == name and source != module:
                        return _defining(source, alias.name)
    return module


@cache
def arrows() -> Mapping[Arrow, frozenset[Kind]]:
    """Returns who imports whom. What is taken of a room is taken of the file behind its door."""
    found: dict[Arrow, set[Kind]] = defaultdict(set)
    for module in modules():
        for source, name, kind in _taken(_tree(module), "run"):
            if source in modules():
                found[module, _defining(source, name) if name else source].add(kind)
        for named in _named_in_texts(module):
            found[module, named].add("lazy")
    return {arrow: frozenset(kinds) for arrow, kinds in found.items() if arrow[0] != arrow[1]}


def circles(kinds: Iterable[Kind]) -> list[list[str]]:
    """Returns modules that lead to one another, by imports of some kinds. Doors of rooms only pass names on."""
    wanted = set(kinds)
    after: dict[str, list[str]] = defaultdict(list)
    for (importer, imported), how in arrows().items():
        if wanted & how and modules()[importer].name != "__init__.py":
            after[importer].append(imported)
    found: list[list[str]] = []
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:  # Tarjan's algorithm
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in after[module]:
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for module in list(after):
        if module not in numbers:
            visit(module)
    return [each for each in found if len(each) > 1]


@cache
def _plan() -> Mapping[str, object]:
    return tomllib.loads((ROOT / "tests" / "layers.toml").read_text())


@cache
def place_of(module: str) -> tuple[int, str] | None:
    """Returns the layer of a module, counted from below, or the satellite, counted as above all; None of the face."""
    layers: dict[str, list[str]] = _plan()["layers"]  # type: ignore[assignment]
    satellites: dict[str, list[str]] = _plan()["satellites"]  # type: ignore[assignment]
    best, found = -1, None
    for floor, (name, prefixes) in enumerate([*layers.items(), *satellites.items()]):
        for prefix in prefixes:
            if (module == prefix or module.startswith(f"{prefix}.")) and len(prefix) > best:
                best, found = len(prefix), (min(floor, len(layers)), name)
    return found


def upward() -> list[Arrow]:
    """Returns the arrows that run from a layer to a higher one, or to a satellite."""
    found = []
    for importer, imported in arrows():
        here, there = place_of(importer), place_of(imported)
        is_of_layer = here is not None and here[1] in _plan()["layers"]  # type: ignore[operator]
        if is_of_layer and here is not None and there is not None and there[0] > here[0]:
            found.append((importer, imported))
    return sorted(found)


def main() -> None:
    """Prints circles, and the arrows that run upward."""
    for kinds in (KINDS[:1], KINDS[:2], KINDS):
        found = circles(kinds)
        print(f"circles, {' + '.join(kinds)}: {len(found)}", *found, sep="\n    ")
    print(f"arrows that run upward: {len(upward())}")
    for importer, imported in upward():
        print(f'    "{importer} -> {imported}",')


if __name__ == "__main__":
    main()
