"""Finds objects that Python's collector was told to leave alone (`gc.freeze`), as a server does before it forks.

They are in no list of the collector's, and it finds no referrers among them. Found are those that modules of programs
and running functions lead to: through containers, objects, classes and closures.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import sys
from collections.abc import Container, Iterable, Iterator
from functools import partial
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from subclass_aot.base._stack import is_program_file
from subclass_aot.base.shown_type import modules_of_programs
from subclass_aot.base.variables import variables_of

_CONTAINERS = (dict, list, tuple, set)
_LONGEST = 10_000
"""Longer containers are data."""
_HOLDERS = (CellType, MethodType, partial, staticmethod, classmethod, property)
_OF_PYTHON = 1 << 9
"""The flag of a class that a class statement has made."""
_LIBRARIES = sys.stdlib_module_names | {"torch", "subclass_aot"}


def left_alone(kind: type) -> Iterator[Any]:
    """Yields objects of exactly a class that the collector leaves alone, and perhaps others; none where there are none.

    Args:
        kind: The class.
    """
    if gc.get_freeze_count():
        roots = [*modules_of_programs(), *itertools.chain(*running().values())]
        yield from (x for x in reached(roots) if type(x) is kind)


def running(but: Container[CodeType] = ()) -> dict[CodeType, list[Any]]:
    """Returns what functions of programs have that run in this thread, by their code; not of installed packages.

    Args:
        but: The code of functions that are left out.
    """
    found: dict[CodeType, list[Any]] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # what a module has, is found without its frame
        if is_function and code not in but and is_program_file(str(frame.f_globals.get("__name__")), code.co_filename):
            found.setdefault(code, []).extend(variables_of(frame).values())
        frame = frame.f_back
    return found


def reached(roots: Iterable[Any], most: int = sys.maxsize) -> Iterator[Any]:
    """Yields objects, and those that they lead to: through containers, objects, classes and closures.

    Args:
        roots: Where the search begins, as globals of modules.
        most: After so many objects it goes no further.
    """
    seen: set[int] = set()
    met: dict[int, Any] = {id(x): x for x in roots}
    while met and len(seen) < most:
        seen.update(met)
        yield from met.values()
        level = [part for x in met.values() for part in _within(x)]
        met = {id(x): x for x in gc.get_referents(*level) if id(x) not in seen} if level else {}


def _within(value: object) -> tuple[Any, ...]:
    """Returns the objects whose referents are what a value leads to. Its class, and globals of functions, are not."""
    cls = type(value)
    if isinstance(value, FunctionType):
        return (value.__closure__ or (), value.__dict__)
    if isinstance(value, type):
        return (value,) if str(value.__module__).partition(".")[0] not in _LIBRARIES else ()
    if isinstance(value, _CONTAINERS):
        return (value,) if len(value) <= _LONGEST else ()
    if isinstance(value, _HOLDERS) or cls.__flags__ & _OF_PYTHON and not isinstance(value, ModuleType):
        return (value,)
    return ()
