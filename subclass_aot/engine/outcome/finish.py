"""The end of a generated function: gives results their structure, and puts into objects what the program put there."""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source
from subclass_aot.base.weak import REFERENT, referent
from subclass_aot.engine.objects import AccessPath, Entry, Named, nodes
from subclass_aot.engine.outcome.recipes import (
    FOR_BACKWARD,
    Change,
    Given,
    Identity,
    Leaf,
    Literal,
    New,
    NewObject,
    Outcome,
    Recipe,
    Recipes,
    Tuple,
    Weak,
)
from subclass_aot.engine.tables import Table, has_vars


def emit_start(source: Source, outcome: Outcome) -> None:
    """Appends what a call keeps before it runs, so as to put it back at its end.

    Args:
        source: The function.
        outcome: What is made of the flat results.
    """
    if outcome.keeps_generator:
        source.line(f"{_KEPT_STATE} = {source.const(torch.get_rng_state, 'get_rng_state')}()")


def emit_finish(
    source: Source,
    outcome: Outcome,
    values: Sequence[str],
    results: Sequence[str],
    named: Mapping[str, object] = types.MappingProxyType({}),
) -> str:
    """Appends what makes the result of a program of flat ones, and changes objects as the program did.

    Args:
        source: The function. It has the names `args`, `kwargs` and `leaves`. Where a call keeps something for backward,
            it has the list `for_backward`, as backward has.
        outcome: What is made of the flat results.
        values: An expression for each tensor of the call.
        results: An expression for each flat result.
        named: The objects of the call that are the same at each, by their paths.

    Returns:
        An expression of what the program returns.
    """
    writer = _Writer(source, outcome, values, results)
    writer.named = named
    return writer.write()


class _Writer:
    def __init__(self, source: Source, outcome: Outcome, values: Sequence[str], results: Sequence[str]) -> None:
        self.source = source
        self.outcome = outcome
        self.values = values
        self.results = results
        self.objects: list[str] = []
        self.new: dict[int, str] = {}
        self.with_vars: dict[int, str] = {}
        self.named: Mapping[str, object] = {}

    def write(self) -> str:
        for access_path in self.outcome.objects:  # before all changes, which may change where a path leads
            self.objects.append(self.reached(access_path))
        changes = [(c, self.pairs(c.assigned), self.expressions(c.removed)) for c in self.outcome.changes]
        result = self.expression(self.outcome.result)
        attributes = [
            (".".join((self.results[position], *inner)), name, self.expression(value))
            for position, inner, entries in self.outcome.attributes
            for name, value in entries
        ]
        for tensor, name, value in attributes:
            self.source.line(f"{tensor}.grad = {value}" if name == "grad" else f"{tensor}.__dict__[{name!r}] = {value}")
        kept = self.expressions(self.outcome.kept)
        for change, assigned, removed in changes:
            self.change(change, self.objects[change.object], assigned, removed)
        if kept:
            self.source.line(f"{FOR_BACKWARD} += [{', '.join(kept)}]")
        self.change_process()
        return result

    def change_process(self) -> None:
        """Appends what sets the generator of random numbers and the default dtype."""
        generator, dtype = self.outcome.generator, self.outcome.default_dtype
        if generator is not None or self.outcome.keeps_generator:
            state = _KEPT_STATE if generator is None else self.expression(generator)
            self.source.line(f"{self.source.const(torch.set_rng_state, 'set_rng_state')}({state})")
        if dtype is not None:
            set_dtype = self.source.const(torch.set_default_dtype, "set_default_dtype")
            self.source.line(f"{set_dtype}({self.source.const(dtype, 'dtype')})")

    def reached(self, access_path: AccessPath) -> str:
        """Appends what gets to an object of the call; returns its local."""
        steps = list(access_path.steps)
        match access_path.start:
            case Entry(holder, table, key):
                text = self.element(self.objects[holder], table, key)
            case Named(path):
                text = self.source.const(self.named[path], "object")
            case "values":
                text = self.values[int(steps.pop(0))]
            case str(text):
                pass
            case pinned:
                text = self.source.const(pinned.value, "object")
        for step in steps:
            if step == REFERENT:
                text = f"{self.source.const(referent, 'referent')}({text})"
                continue
            text += f".{step}" if isinstance(step, str) else f"[{step}]"
        name = self.source.fresh("object")
        self.source.line(f"{name} = {text}")
        return name

    def element(self, holder: str, table: Table, key: object) -> str:
        """Returns the expression of what stands at a key of a table."""
        k = self.expression(key) if isinstance(key, Recipe) else self.constant(key)
        match table.kind:
            case "elements":
                return f"{self.source.const(_element, 'element')}({holder}, {k})"
            case "members" | "keys":
                return f"list({holder})[{k}]"
            case "slots" | "partial":
                return f"{holder}.{key}"
            case "cells":
                return f"{self.cell(holder, str(key))}.cell_contents"
            case "items":
                return f"{self.source.const(dict.__getitem__, 'item')}({holder}, {k})"
        return f"{self.mapping(holder, table)}[{k}]"

    def mapping(self, holder: str, table: Table) -> str:
        """Returns the expression of the dict behind a table."""
        if table.kind == "weakly":
            return holder
        if table.kind == "held":
            return f"{self.source.const(Table.view_of, 'view_of')}({holder})"
        if table.kind == "globals":
            return f"{holder}.__globals__" + ("" if table.module is None else f"[{table.module!r}].__dict__")
        return f"{holder}.__dict__" if table.kind in ("attributes", "class") else f"{holder}.{table.kind}"

    def cell(self, function: str, name: str) -> str:
        return f"{function}.__closure__[{function}.__code__.co_freevars.index({name!r})]"

    def constant(self, value: object) -> str:
        plain = value is None or type(value) in (int, str, bool)
        return repr(value) if plain else self.source.const(value, "constant")

    def expressions(self, recipes: Iterable[Recipe]) -> list[str]:
        return [self.expression(r) for r in recipes]

    def pairs(self, recipes: Recipes) -> list[tuple[str, str]]:
        return [(self.expression(k), self.expression(v)) for k, v in recipes]

    def expression(self, recipe: Recipe) -> str:
        """Appends what it takes to make something, and returns its expression."""
        match recipe:
            case Leaf():
                return self.results[recipe.position]
            case Given():
                return self.objects[recipe.position]
            case Literal():
                return self.constant(recipe.value)
            case Tuple():
                parts = f"({''.join(f'{part}, ' for part in self.expressions(recipe.parts))})"
                if recipe.cls is tuple:
                    return parts
                make = self.source.const(functools.partial(nodes.make_tuple, recipe.cls), recipe.cls.__name__)
                if not has_vars(recipe.cls):
                    return f"{make}({parts})"
                if id(recipe) not in self.with_vars:  # a program may see whether two are one
                    local = self.with_vars[id(recipe)] = self.source.fresh(recipe.cls.__name__)
                    self.source.line(f"{local} = {make}({parts})")
                return self.with_vars[id(recipe)]
            case Identity():
                return f"id({self.expression(recipe.of)})"
            case Weak():
                return f"{self.source.const(getattr(weakref, recipe.kind), 'weak')}({self.expression(recipe.target)})"
            case New():
                known = self.new.get(recipe.position)
                return self.made(recipe.position, self.outcome.new[recipe.position]) if known is None else known

    def made(self, position: int, new: NewObject) -> str:
        """Appends what makes a new object; returns its local."""
        if new.is_registered:
            parts = "".join(f"{part}, " for part in self.expressions(new.parts))
            name = self.new[position] = self.source.fresh(new.cls.__name__)
            make = self.source.const(new.unflatten(), f"make_{new.cls.__name__}")
            self.source.line(f"{name} = {make}(({parts}))")
            return name
        if new.cls is list and not _reaches(self.outcome, position):
            listed = ", ".join(self.expression(value) for _, entries in new.tables for _, value in entries)
            name = self.new[position] = self.source.fresh("result")
            self.source.line(f"{name} = [{listed}]")
            return name
        name = self.new[position] = self.source.fresh(new.cls.__name__)  # known before its parts: it may hold itself
        self.source.line(f"{name} = {self.empty(new)}")
        for table, entries in new.tables:
            if entries:
                self.fill(name, table, self.pairs(entries))
        return name

    def empty(self, new: NewObject) -> str:
        """Returns the expression of an object that holds nothing yet."""
        if new.cls in (list, dict, set):
            return {list: "[]", dict: "{}", set: "set()"}[new.cls]
        cls = self.source.const(new.cls, new.cls.__name__)
        if new.cls is defaultdict:
            return f"{cls}({self.source.const(new.like, 'factory')})"
        if new.cls is deque:
            return f"{cls}(maxlen={new.like})"
        if issubclass(new.cls, defaultdict | deque):
            return f"{self.source.const(functools.partial(_empty, new.cls, new.like), 'empty')}()"
        # The constructor of the class is not run: it would do again what the trace has seen it do.
        base = next(b for b in _BASES if issubclass(new.cls, b))
        return f"{self.source.const(base.__new__, 'new')}({cls})"

    def fill(self, name: str, table: Table, entries: Sequence[tuple[str, str]]) -> None:
        """Appends what puts everything into an object that holds nothing yet."""
        match table.kind:
            case "grad":
                self.source.line(f"{name}.grad = {entries[0][1]}")
            case "data":
                self.source.line(f"{name}.data = {entries[0][1]}")
            case "state":
                set_state = self.source.const(_torch.generator.set_generator_state, "set_state")
                self.source.line(f"{set_state}({name}, {entries[0][1]})")
            case "elements" | "members":
                self.add(name, table, entries)
            case "slots" | "class":
                put = self.source.const((object if table.kind == "slots" else type).__setattr__, "put")
                for key, value in entries:
                    self.source.line(f"{put}({name}, {key}, {value})")
            case _:
                self.update(name, table, entries)

    def add(self, name: str, table: Table, entries: Sequence[tuple[str, str]]) -> None:
        """Appends what puts more into a sequence or a set."""
        put = self.source.const(*((_extend, "extend") if table.kind == "elements" else (set.update, "update")))
        self.source.line(f"{put}({name}, [{', '.join(v for _, v in entries)}])")

    def update(self, name: str, table: Table, entries: Sequence[tuple[str, str]]) -> None:
        if table.kind == "items":
            for key, value in entries:
                self.source.line(f"{self.source.const(_set_item, 'set_item')}({name}, {key}, {value})")
        else:
            for key, value in entries:
                self.source.line(f"{self.mapping(name, table)}[{key}] = {value}")

    def change(self, change: Change, name: str, assigned: list[tuple[str, str]], removed: list[str]) -> None:
        """Appends what changes one table of an object of the call."""
        table = change.table
        if table.kind in ("elements", "members"):
            if not change.appended:
                values = ", ".join(value for _, value in assigned)
                self.source.line(f"{self.source.const(Table.refill, 'refill')}({name}, [{values}])")
            elif assigned:
                self.add(name, table, assigned)
            return
        for key in removed:
            if table.kind in ("slots", "class"):
                remove = (object if table.kind == "slots" else type).__delattr__
                self.source.line(f"{self.source.const(remove, 'remove')}({name}, {key})")
            elif table.kind == "items":
                self.source.line(f"{self.source.const(_delete_item, 'delete_item')}({name}, {key})")
            else:
                self.source.line(f"del {self.mapping(name, table)}[{key}]")
        if table.kind == "cells":
            for key, value in assigned:
                self.source.line(f"{self.cell(name, key.strip(chr(39)))}.cell_contents = {value}")
        else:
            self.fill(name, table, assigned)


def _reaches(outcome: Outcome, target: int) -> bool:
    """Returns whether a new object holds itself, perhaps by way of others."""
    seen: set[int] = set()
    todo: list[Recipe] = [New(target)]
    while todo:
        recipe = todo.pop()
        if isinstance(recipe, Weak):
            todo.append(recipe.target)
        elif isinstance(recipe, Tuple):
            todo += recipe.parts
        elif isinstance(recipe, New) and recipe.position not in seen:
            new = outcome.new[recipe.position]
            inside = [*new.parts, *(x for _, entries in new.tables for entry in entries for x in entry)]
            if New(target) in inside:
                return True
            seen.add(recipe.position)
            todo += inside
    return False


_KEPT_STATE = "state_of_generator"
_BASES = (OrderedDict, defaultdict, dict, deque, list, set, types.SimpleNamespace, torch.Generator, object)


def _set_item(holder: dict[object, object], key: object, value: object) -> None:
    """Assigns below what a subclass of dict makes of it: what that did is among the changes by itself."""
    (OrderedDict if isinstance(holder, OrderedDict) else dict).__setitem__(holder, key, value)


def _delete_item(holder: dict[object, object], key: object) -> None:
    (OrderedDict if isinstance(holder, OrderedDict) else dict).__delitem__(holder, key)


def _element(holder: object, position: int) -> Any:
    return Table.methods_of(holder).__getitem__(holder, position)


def _extend(holder: object, values: list[Any]) -> None:
    Table.methods_of(holder).extend(holder, values)


def _empty(cls: Any, like: Any) -> Any:
    """Makes a `defaultdict` or `deque` of a user's class, without the constructor of that class."""
    found = cls.__new__(cls)
    if isinstance(found, deque):
        deque.__init__(found, (), like)
    else:
        found.default_factory = like
    return found
