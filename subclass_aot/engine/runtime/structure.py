"""The structure of a module: its facts without its tensors; modules of one structure share one compilation.

It is what the walk over objects finds from the module on: classes, submodules, the names of parameters and buffers,
hooks of submodules, and all other attributes. Modules are compared by what they hold, and so are objects that hold
nothing; all else is compared as the guard of a compiled function does it. It is read once, and again when anything that
it was read from is another object: one call of a C function says whether. Numbers and texts that are attributes of
modules stand apart, since many are not read (`runtime/reads.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base.exact import items_of
from subclass_aot.engine.facts import Fact, Kind, ObjectReader
from subclass_aot.engine.facts import fact as kinds
from subclass_aot.engine.objects import Holder, Objects, nodes
from subclass_aot.engine.runtime.reads import noticed, watchable
from subclass_aot.engine.tables import HOOKS, Table

_OF_TENSORS = (_torch.modules.PARAMETERS, _torch.modules.BUFFERS)
_ROOT = "self"


class Structure:
    """The structure of a module, and where its tensors are.

    Attributes:
        key: Equal for modules of one structure.
        is_shared: Whether what is compiled for one module serves others of its structure. Not if it has tensors that
            are no parameters and buffers, or holds modules out of sight, or something that may change unseen.
        scalars: Numbers and texts, by the path of their module and their name. Their values are no part of the key.
        places: Each parameter and buffer: its name, the table it stands in, and its name there.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """Reads it."""
        objects = Objects(whole_modules=True, without_hooks=module)
        objects.root(module, _ROOT, True)
        self._modules = {path.removeprefix(_ROOT).removeprefix("."): m for path, m in objects.modules}
        self.scalars: dict[tuple[str, str], Any] = {}
        self.places: list[tuple[str, dict[str, Any], str]] = []
        self._of_tensors: list[dict[str, Any]] = []
        self._tables: list[tuple[Table, object]] = []
        parts: list[object] = []  # these are nodes and keys
        for holder in objects.holders:
            self._note(holder, parts)
        shapes = tuple((name, getattr(table[key], "shape", None)) for name, table, key in self.places)
        self.key: Any = (*self._facts(objects), shapes)
        watched = {id(x): x for found in [table.watched(holder) for table, holder in self._tables] for x in found}
        self.is_shared = (
            watched.pop(id(Table.UNSEEN), None) is None
            and not objects.watched
            and set(map(id, self._modules.values())) == set(map(id, module.modules()))
            and not [x for x in parts if isinstance(x, nodes.Node) and not nodes.is_steady(x)]
        )
        self._watched = tuple([x for holder in watched.values() for x in (holder, items_of(holder))])
        of_hooks = [vars(m)[name] for path, m in self._modules.items() if path for name in HOOKS]
        unwalked = (*(table for table in of_hooks if not table), *_torch.modules.hooks_of_all)
        self._watched += tuple([x for table in unwalked for x in (table, items_of(table))])
        self._names = [name for _, _, name in self.places]

    def _note(self, holder: Holder, parts: list[object]) -> None:
        """Notes the tables of an object, and puts into `parts` what stands there, but for parameters and buffers."""
        is_module = isinstance(holder.value, torch.nn.Module)
        path = holder.path.removeprefix(_ROOT).removeprefix(".")
        for table, entries in holder.tables:
            if table.kind in _OF_TENSORS:
                content = table.mapping(holder.value)
                self._of_tensors.append(content)
                self.places += [(f"{path}.{name}" if path else name, content, name) for name in content]
                continue
            self._tables.append((table, holder.value))
            parts += [part for entry in entries for part in entry]
            if is_module and table.kind == "attributes":
                names = watchable(holder.value, [str(name) for name, _ in entries])
                self.scalars |= {(path, name): None for name in names}

    def _facts(self, objects: Objects) -> list[Fact]:
        """Lists what is compared with other modules; notes numbers and texts that stand apart."""
        apart = {f"{_ROOT}.{path}.{name}" if path else f"{_ROOT}.{name}": (path, name) for path, name in self.scalars}
        found = []
        for fact in ObjectReader(objects, [False] * len(objects.holders)).read():
            value, place = fact.value, fact.place
            if fact.kind is Kind.VALUE and place in apart:
                self.scalars[apart[place]] = value
            elif isinstance(value, kinds.Hooks):  # their numbers differ from module to module
                found.append(fact._replace(value=(value.functions, value.how)))
            elif not isinstance(value, kinds.Itself):
                found.append(fact)
        return found

    def still_holds(self) -> bool:
        """Returns whether the module still has it."""
        return hooks.same_items(self._watched) and [*itertools.chain(*self._of_tensors)] == self._names

    def tensors(self) -> dict[str, torch.Tensor | None]:
        """Returns the parameters and buffers that the module has now, by name."""
        return {name: table.get(key) for name, table, key in self.places}

    def contents(self) -> list[tuple[Table, object, list[tuple[Any, Any]]]]:
        """Returns what all but the tables of tensors hold now."""
        return [(table, holder, table.read(holder)) for table, holder in self._tables if table.kind not in HOOKS]

    restore = staticmethod(Objects.restore)

    def scalars_noticed(self, note: Callable[[tuple[str, str]], None]) -> AbstractContextManager[None]:
        """Runs a block, and calls `note` with each number and text that is read: its key in `scalars`."""
        return noticed(self._modules, list(self.scalars), note)
