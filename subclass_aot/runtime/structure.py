"""Hashable key of a module without its tensors; modules with equal keys share one compilation.

The structure is everything that its forward might read in Python: classes, submodules, the names of parameters and
buffers, hooks of submodules, and all other attributes. Values that can be flattened are compared by what they are
made of, all others by identity, so that nothing is taken for equal which might not be. It is read once, and again when
anything that it was read from is another object: one call of a C function says whether. Numbers and texts that are
attributes of modules stand apart, since many are not read (`runtime/reads.py`).
"""

from __future__ import annotations

import enum
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from subclass_aot import _torch, hooks
from subclass_aot.runtime.reads import can_be_watched, noticed
from subclass_aot.tables import Reached, tables_of

_TABLES = (_torch.PARAMETERS, _torch.BUFFERS)
_HOOKS = _torch.MODULE_HOOKS
_AROUND = (*_HOOKS, *_torch.HOW_HOOKS_RUN)
"""Hooks run around `forward`: those of the module itself are no part of what is compiled."""
_ELSEWHERE = (*_torch.MODULE_TABLES, *_torch.NOT_READ_BY_FORWARD)
"""Attributes that are read in another way, or that have no part in a forward."""
_CONTAINERS = (list, dict, OrderedDict, set, frozenset)
_SCALARS = (bool, int, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class Structure:
    """The structure of a module, and where its tensors are.

    Attributes:
        key: Equal for modules of one structure.
        modules: The module and its submodules, by path.
        scalars: Numbers and texts, by the path of their module and their name. Their values are no part of the key.
        places: Each parameter and buffer: its name, the table it stands in, and its name there.
    """

    def __init__(self, module: torch.nn.Module, skip: tuple[str, ...] = ()) -> None:
        """Reads it.

        Args:
            module: The module.
            skip: Attributes of the module itself that do not count.
        """
        self.modules = dict(module.named_modules())
        reader = _Reader(self.modules)
        of_modules = [reader.of_module(path, m, () if path else skip) for path, m in self.modules.items()]
        self.key: Any = (*of_modules, *reader.of_classes(map(type, self.modules.values())))
        self.scalars = reader.scalars
        self.places = reader.places
        self._tables = reader.tables
        self._kept = tuple(reader.items)
        self._mutable = reader.mutable

    def still_holds(self) -> bool:
        """Returns whether the module still has it."""
        return (
            hooks.same_items(self._kept)
            and sum(map(len, self._tables)) == len(self.places)
            and all(_ids(value) == _ids(elements) for value, elements in self._mutable)
        )

    def tensors(self) -> dict[str, torch.Tensor | None]:
        """Returns the parameters and buffers that the module has now, by name."""
        return {name: table.get(key) for name, table, key in self.places}

    def scalars_noticed(self, note: Callable[[tuple[str, str]], None]) -> AbstractContextManager[None]:
        """Runs a block, and calls `note` with each number and text that is read: its key in `scalars`."""
        return noticed(self.modules, list(self.scalars), note)


class _Reader:
    """Reads modules.

    Args:
        modules: The modules, by path.

    Attributes:
        scalars: As in `Structure`.
        places: As in `Structure`.
        tables: The tables of parameters and buffers.
        items: Each dict that was read, and what it held, to be compared by identity.
        mutable: Each list and set that was read, and what it held.
    """

    def __init__(self, modules: Mapping[str, torch.nn.Module]) -> None:
        self.scalars: dict[tuple[str, str], Any] = {}
        self.places: list[tuple[str, dict[str, Any], str]] = []
        self.tables: list[dict[str, Any]] = []
        self.items: list[Any] = []
        self.mutable: list[tuple[Any, tuple[Any, ...]]] = []
        self._path_of = {id(module): path for path, module in modules.items()}
        self._watched: set[int] = set()
        self._inside: dict[int, int] = {}
        self._noted: list[type | types.FunctionType] = []

    def _watch(self, table: dict[Any, Any]) -> None:
        if id(table) in self._watched:
            return
        self._watched.add(id(table))
        self.items += table, tuple([x for item in table.items() for x in item])

    def of_module(self, path: str, module: torch.nn.Module, skip: tuple[str, ...]) -> Any:
        """Returns a module but for its submodules and its tensors, to be compared with `==`."""
        self._watch(vars(module))
        self._watch(_torch.submodules_of(module))
        for table in _TABLES:
            content = getattr(module, table)
            self.tables.append(content)
            self.places += [(f"{path}.{name}" if path else name, content, name) for name in content]
        tensors = [item for name in _TABLES for item in getattr(module, name).items()]
        shapes = tuple((name, None if tensor is None else tuple(tensor.shape)) for name, tensor in tensors)
        submodules = _torch.submodules_of(module).items()
        children = tuple((n, None if m is None else self._path_of[id(m)]) for n, m in submodules)
        skip = (*skip, *_ELSEWHERE, *(_AROUND if not path else ()))
        attributes = {n: v for n, v in vars(module).items() if n not in skip and not _torch.is_bookkeeping(n)}
        for name in [name for name in attributes if can_be_watched(module, name)]:
            self.scalars[path, name] = self._of(attributes[name])
            attributes[name] = ...
        described = tuple((name, self._attribute(name, attributes[name])) for name in sorted(attributes))
        return path, type(module), shapes, children, described

    def of_classes(self, classes: Iterable[type]) -> Iterator[Any]:
        """Yields what classes hold, and what globals functions that may run name, to be compared with `==`.

        Args:
            classes: Of the modules. Those of objects in attributes, and functions, were noted while these were read.
        """
        reached, seen = Reached(), set[types.FunctionType]()
        self._noted += classes
        while self._noted:
            value = self._noted.pop(0)
            if isinstance(value, type):
                for cls in reached.add_class(value):
                    self.items += cls, tuple([x for item in vars(cls).items() for x in item])
                    yield cls, *self._of_tables(cls)
            elif value not in seen:
                seen.add(value)
                reached.add_function(value)
                yield value, *self._of_tables(value)
            if not self._noted:
                self._noted += [method for method in reached.methods() if method not in seen]

    def _of_tables(self, value: type | types.FunctionType) -> Iterator[Any]:
        for table in tables_of(value, True, None, False):
            if table.kind not in ("class", "globals"):
                continue
            named = table.read(value)
            if table.kind == "globals":
                for name, x in named:
                    self.items += (table.mapping(value), name), (x,)
            yield tuple((name, self._of(x)) for name, x in named)

    def _attribute(self, name: str, value: object) -> Any:
        if name in _AROUND and isinstance(value, dict):  # hooks, by numbers that differ from module to module
            self._watch(value)
            return tuple(map(self._of, value.values()))
        return self._of(value)

    def _of(self, value: object) -> Any:
        """Returns the parts of a value, to be compared with `==`."""
        kind = type(value)
        if kind in _SCALARS:
            return kind, value
        if type(value) is float:
            return kind, value.hex()
        if id(value) in self._path_of:
            return "module", self._path_of[id(value)]
        if type(value) is types.MethodType:
            return kind, _Same(value.__func__), self._of(value.__self__)
        if isinstance(value, type | types.FunctionType):
            self._noted.append(value)
        is_plain = _is_plain_object(value)
        if is_plain:
            self._noted.append(kind)
        if not (is_plain or kind in _CONTAINERS or isinstance(value, tuple)):
            return _Same(value)
        if id(value) in self._inside:  # it holds itself
            return "again", self._inside[id(value)]
        self._inside[id(value)] = len(self._inside)
        try:
            return kind, *self._parts(value)
        finally:
            del self._inside[id(value)]

    def _parts(self, value: object) -> Iterator[Any]:
        if isinstance(value, dict):
            self._watch(value)
            yield tuple(map(self._of, value)), tuple(map(self._of, value.values()))
        elif isinstance(value, set | frozenset):
            self.mutable.append((value, tuple(value)))
            yield frozenset((type(x), x) if type(x) in _SCALARS else _Same(x) for x in value)
        elif isinstance(value, tuple | list):
            if isinstance(value, list):
                self.mutable.append((value, tuple(value)))
            yield tuple(map(self._of, value))
        else:
            attributes = vars(value)
            self._watch(attributes)
            yield tuple((name, self._of(attributes[name])) for name in sorted(attributes))


class _Same:
    """Equal to the same object only."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _Plain:
    pass


def _is_plain_object(value: object) -> bool:
    """Returns whether all that an object is stands in its `__dict__`: an instance of a class that is written in
    Python.
    """
    kind = type(value)
    plain = kind.__basicsize__ == _Plain.__basicsize__ and hasattr(value, "__dict__")
    return plain and not isinstance(value, type | enum.Enum | torch.nn.Module)


def _ids(values: Iterable[object]) -> list[int]:
    """Returns the ids of what a list or a set holds, to be compared by identity."""
    return list(map(id, values))
