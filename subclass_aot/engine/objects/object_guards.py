"""The part of a guard that compares objects with those of the call that was traced, by what they hold."""

from __future__ import annotations

import functools
import types
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base.bytecode import names_in
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.base.weak import REFERENT, is_weak, referent
from subclass_aot.engine.objects.class_guard import ClassGuard, is_method
from subclass_aot.engine.objects.comparisons import (
    elements_of,
    is_compared_by_identity,
    items_of,
    kept,
    may_change,
    same_constant,
    same_contents,
    same_keys,
)
from subclass_aot.engine.objects.holders import Entries, Holder
from subclass_aot.engine.objects.nodes import (
    METHODS_IN_C,
    Node,
    NumberAt,
    ObjectAt,
    TensorAt,
    TupleAt,
    ValueAt,
    WeakAt,
    steps_of,
    tensor_of,
    value_of,
)
from subclass_aot.engine.objects.numbers_apart import NumbersApart
from subclass_aot.engine.objects.same_attributes import SameAttributes
from subclass_aot.engine.objects.same_table import SameTable
from subclass_aot.engine.objects.walk import Objects
from subclass_aot.engine.tables import ATOMS, HOOKS, Table, has_vars

_ABSENT = object()
_ASKING = frozenset({"getattr", "hasattr", "vars", "dir", "__dict__", "AttributeError", "Exception"})
"""Names by which a function asks whether there is an attribute."""
_SEVERAL = 2
"""From how many attributes one call for all is as fast as one comparison for each, and shorter to write."""
_MANY = 16
"""From how many Python values on a list or dict is compared at once."""


class ObjectGuards:
    """Writes comparisons into one generated function, and finds the tensors on the way.

    Args:
        objects: The objects of the call that was traced.
        source: The function.
        written: The paths of objects into which the program puts something.
        in_modules: The numbers of tensors that modules hold, too.

    Attributes:
        tensors: The locals of the tensors that objects hold, by their numbers.
        tables: Expressions of what `same_items` can compare, so that an unchanged table need not be read again.
        gradients: If not None, gets the tensors whose `.grad` is left out, each with the number of that, or None.
            Another step of training has other gradients, and who kept one would keep its memory.
        numbers: Then, the tables with numbers that are read at each call.
    """

    # More than ten attributes, parts of one state: what is compared, where it is written, and what was met.

    def __init__(
        self, objects: Objects, source: GuardedSource, written: frozenset[str], in_modules: frozenset[int] = frozenset()
    ) -> None:
        self.objects = objects
        self.in_modules = in_modules
        self.written = written
        self.source = source
        self.tensors: dict[int, str] = {}
        self.tables: list[str] = []
        self.gradients: list[tuple[str, int | None]] | None = None
        self.numbers: list[NumbersApart] = []
        self._locals: dict[int, str] = {}
        self._same: dict[tuple[Any, ...], SameAttributes] = {}

    def leaves(self, compared: Collection[int] = ()) -> None:
        """Emits the comparison of the arguments that are no tensors.

        Args:
            compared: The positions of those that were compared before.
        """
        for position, node in self.objects.leaves.items():
            if position in compared:
                continue
            self.node(f"leaves[{position}]", node)

    def pinned(self, parts: Iterable[tuple[str, object]]) -> None:
        """Emits the comparison of what is the same object at each call: what the function itself holds, and modules.

        Args:
            parts: Names for these, and themselves.
        """
        for hint, part in parts:
            position = self.objects.position_of(part)
            if position is not None and position not in self._locals:
                self.holder(self.source.const(part, hint), position)
        for position in self.objects.reached:
            if position not in self._locals:
                self.holder(self.source.const(self.objects.holders[position].value, "reached"), position)

    def constant(self, name: str, value: Any, read: str | None = None) -> None:
        """Emits the comparison with a Python value: equal, and of one type; or the same object, for want of equality.

        Args:
            name: The local it is in.
            value: The value.
            read: What reads it, where it is in no local yet. It gets there if it is compared twice.
        """
        once = name if read is None else read
        if is_weak(value):
            self.source.refuse_if(f"{once} is not {self.source.const(value, 'weak')}")
            return
        if value is None or isinstance(value, bool):
            self.source.refuse_if(f"{once} is not {value!r}")
            return
        hint = name if name.isidentifier() else "constant_" + name
        local = self.source.const(kept(value), hint)
        if is_compared_by_identity(value):
            self.source.refuse_if(f"{once} is not {local}")
        else:
            same = self.source.const(same_constant, "same_constant")
            first = name if read is None else f"({name} := {read})"
            self.source.refuse_if(f"{first} is not {local} and not {same}({name}, {local})")

    def distinct(self) -> None:
        """Emits the check that objects that were two still are: what is put into one is not seen in the other."""
        groups: dict[type, list[str]] = {}
        for position, name in self._plain().items():
            groups.setdefault(type(self.objects.holders[position].value), []).append(name)
        for names in groups.values():  # objects of two classes are two already
            different = dict.fromkeys(names)
            if len(different) > 1:
                self.source.refuse_if(f"len({{{', '.join(f'id({n})' for n in different)}}}) != {len(different)}")

    def alike(self, others: ObjectGuards) -> dict[int, str]:
        """Returns the objects of `others` that may be passed here, too: those of a class that is here, by position."""
        holders = self.objects.holders
        classes = {type(holders[position].value) for position in self._plain()}
        return {p: name for p, name in others._plain().items() if type(holders[p].value) in classes}

    def distinct_from(self, kept: str, positions: list[int]) -> None:
        """Emits the comparison with objects in a kept tuple: those that were here, too, still are, and no others."""
        if not positions:
            return
        own = self._plain()
        for i, position in enumerate(positions):
            if position in own:
                self.source.refuse_if(f"{own[position]} is not {kept}[{i}]")
        others = [f"id({name})" for position, name in own.items() if position not in positions]
        if others:
            self.source.refuse_if(f"not {{{', '.join(others)}}}.isdisjoint(map(id, {kept}))")

    def _plain(self) -> dict[int, str]:
        """Returns the locals of objects that are compared by what they hold, by their positions."""
        holders = self.objects.holders
        kinds = torch.Tensor | torch.nn.Module | types.FunctionType
        return {p: name for p, name in self._locals.items() if not isinstance(holders[p].value, kinds)}

    def has_read(self, holder: Holder) -> bool:
        """Returns whether an object is in a local."""
        return self.objects.position_of(holder.value) in self._locals

    def attributes(self, name: str, holder: Holder) -> None:
        """Emits the comparison of what a program put on the tensor in a local."""
        position = self.objects.position_of(holder.value)
        assert position is not None
        kind = self.source.const(type(holder.value), type(holder.value).__name__)
        self.source.refuse_if(f"type({name}) is not {kind}")  # what stands there may be anything; metadata comes later
        self.holder(name, position)

    def _value(self, name: str, node: ValueAt, read: str | None = None) -> None:
        if may_change(node.value):
            self.tables.append(self.source.const(Table.UNSEEN, "unseen"))
        self.constant(name, node.value, read)

    def node(self, name: str, node: Node) -> None:
        """Emits the comparison of what an expression gives."""
        match node:
            case ValueAt():
                self._value(name, node)
            case TensorAt():
                self.tensors[node.number] = name
            case NumberAt():
                other = f"type({name}) is not {self.source.const(node.cls, node.cls.__name__)}"
                if node.cls is int:
                    other += f" or {name} not in {self.source.const(node.values, 'numbers')}"
                self.source.refuse_if(other)
                local = self.tensors[node.number] = self.source.fresh("number")
                self.source.line(f"{local} = {self.source.const(tensor_of, 'tensor_of')}({name})")
            case TupleAt():
                self.source.refuse_if(f"type({name}) is not {self.source.const(node.cls, node.cls.__name__)}")
                if node.cls is types.MethodType or node.cls in METHODS_IN_C:
                    for step, part in zip(steps_of(node.cls, 2), node.parts, strict=True):
                        self.node(name + step, part)
                elif has_vars(node.cls):
                    self.with_vars(name, node)
                else:
                    self.unpacked_tuple(name, node.cls, list(node.parts), name)
            case WeakAt():
                self.source.refuse_if(f"type({name}) is not {self.source.const(type(node.value), 'kind')}")
                self.node(self.referent(name, node.target), node.target)
            case ObjectAt():
                self.object(name, node)

    def with_vars(self, name: str, node: TupleAt) -> None:
        """Emits the comparison of a tuple, a number or a text with attributes."""
        *parts, attributes = node.parts
        hint = name if name.isidentifier() else "value"
        if issubclass(node.cls, tuple):
            self.unpacked_tuple(name, node.cls, parts, hint)
        else:
            local = self.source.fresh(f"{hint}_plain")
            self.source.line(f"{local} = {self.source.const(value_of, 'value_of')}({name})")
            self.node(local, parts[0])
        local = self.source.fresh(f"{hint}_attributes")
        self.source.line(f"{local} = {name}.__dict__")
        self.node(local, attributes)

    def referent(self, reference: str, target: Node) -> str:
        """Emits the read of the object of a weak reference; returns its local."""
        match target:
            case TensorAt():
                lives = target.number in self.in_modules
            case ObjectAt():
                lives = REFERENT not in self.objects.holders[target.position].access_path.steps
            case _:
                lives = False
        if not lives:  # who kept it would keep it alive
            self.tables.append(self.source.const(Table.UNSEEN, "unseen"))
        local = self.source.fresh(f"{reference}_referent")
        self.source.line(f"{local} = {self.source.const(referent, 'referent')}({reference})")
        return local

    def object(self, name: str, node: ObjectAt) -> None:
        """Emits the comparison of an object: by identity if that is its fact, otherwise by what it holds."""
        holder = self.objects.holders[node.position]
        is_module = isinstance(holder.value, torch.nn.Module)
        is_function = isinstance(holder.value, types.FunctionType)
        is_bare = holder.is_bare and holder.path not in self.written
        if is_module or is_function or is_bare or holder.is_value:
            self.source.refuse_if(f"{name} is not {self.source.const(holder.value, holder.path)}")
            if not is_module and node.position not in self._locals:  # `pinned` walks modules
                self.holder(self.source.const(holder.value, holder.path), node.position)
        elif node.position in self._locals:
            self.source.refuse_if(f"{name} is not {self._locals[node.position]}")
        else:
            kind = self.source.const(type(holder.value), type(holder.value).__name__)
            self.source.refuse_if(f"type({name}) is not {kind}")
            self.holder(name, node.position)

    def matters(self, holder: Holder) -> bool:
        """Returns whether there is something to compare: most functions hold nothing, and nobody asks them."""
        bare = isinstance(holder.value, types.FunctionType) and not any(entries for _, entries in holder.tables)
        return not bare or holder.path in self.written or self._asks

    @functools.cached_property
    def _asks(self) -> bool:
        """Whether a function of the call may ask for an attribute that is not there."""
        functions = [h.value for h in self.objects.holders if isinstance(h.value, types.FunctionType)]
        return any(not _ASKING.isdisjoint(names_in(function.__code__)) for function in functions)

    def holder(self, name: str, position: int) -> None:
        """Emits the comparison of what an object in a local holds, table by table."""
        self._locals[position] = name  # before its parts: an object may hold itself
        holder = self.objects.holders[position]
        if holder.only_grows or not self.matters(holder):
            return
        for table, entries in holder.tables:
            if self.gradients is not None and table.kind == "grad" and holder.value.is_leaf:
                ((_, node),) = entries
                self.gradients.append((name, node.number if isinstance(node, TensorAt) else None))
                continue
            apart = None if self.gradients is None else NumbersApart.of(name, holder, table, entries, self.source)
            if apart is None:
                self.tables.append(f"*{self.source.const(table.watched, 'watched')}({name})")
            else:
                self.numbers.append(apart)
                self.tables += [f"({apart.table}, {key!r})" for key in apart.others]
            self.table(name, holder, table, entries)

    def numbers_apart(self, name: str, apart: NumbersApart) -> None:
        """Emits the reads of numbers that change, and one comparison of all names beside them.

        Args:
            name: The local of the table.
            apart: What it has.
        """
        if apart.in_order:
            same = self.source.const(same_keys, "same_keys")
            self.source.refuse_if(f"not {same}({name}, {self.source.const(apart.keys, 'keys')})")
        elif not apart.is_part:
            self.source.refuse_if(f"{name}.keys() != {self.source.const(frozenset(apart.keys), 'keys')}")
        self._by_name(name, apart.numbers)

    def table(self, name: str, holder: Holder, table: Table, entries: Entries) -> None:
        """Emits the comparison of one table of an object."""
        match table.kind:
            case "elements":
                self._elements(name, holder, entries)
            case "members":
                self._members(name, holder, entries)
            case "items":
                self._items(name, holder, entries)
            case "weakly":
                self._weakly(name, entries)
            case "keys":
                self._keys(name, entries)
            case "attributes":
                self._attributes(name, holder, table, entries)
            case "slots":
                self._slots(name, table, entries)
            case "cells":
                self._cells(holder.value, entries)
            case "globals":
                self._globals(holder.value, table, entries)
            case "class":
                self._class(name, holder.value, entries)
            case "partial" | "grad" | "state":
                self._one_by_one(name, holder, table, entries)
            case _:
                self._view(name, table, entries)

    def all_at_once(self, name: str, holder: Holder, entries: Entries) -> bool:
        """Emits one comparison of a long list or dict of Python values; returns whether it is one."""
        found = tuple(
            node.value for key, node in entries if isinstance(node, ValueAt) and not isinstance(key, TensorAt)
        )
        if len(entries) <= _MANY or len(found) < len(entries):
            return False
        cls = type(holder.value)
        texts = [key for key, _ in entries if type(key) is str] if cls is dict else None
        if (cls is list or texts is not None and len(texts) == len(found)) and ATOMS.issuperset(map(type, found)):
            self.plain_table(name, texts, found)
            return True
        values = self.source.const(found, "values")
        keys = self.source.const(tuple(key for key, _ in entries), "keys")
        self.source.refuse_if(f"not {self.source.const(same_contents, 'same_contents')}({name}, {keys}, {values})")
        return True

    def plain_table(self, name: str, keys: Sequence[str] | None, values: Sequence[Any]) -> None:
        """Emits the comparison of a list, tuple or dict of Python's own classes, of plain values, as a whole.

        Args:
            name: The local it is in. Its class is known.
            keys: The keys, texts, where it is a dict; else None.
            values: The values.
        """
        self.source.refuse_if(f"not {self.source.const(SameTable(keys, values), 'table')}({name})")

    def _limit(self, name: str, holder: Holder) -> None:
        """Emits the comparison of what a container has beside its contents."""
        limit = Table.limit_of(holder.value)
        different = f"is not {self.source.const(limit, 'factory')}" if callable(limit) else f"!= {limit}"
        self.source.refuse_if(f"{name} {different}")

    def unpacked(self, name: str, nodes: list[Node], hint: str | None = None) -> None:
        """Emits the comparison of a sequence of as many elements."""
        hint = hint or name
        if hint != name:
            local = self.source.fresh(f"{hint}_elements")
            self.source.line(f"{local} = {name}")
            name = local
        self.source.refuse_if(f"len({name}) != {len(nodes)}")
        if not nodes:
            return
        names = [self.source.fresh(f"{hint}_{i}") for i in range(len(nodes))]
        self.source.line(f"({', '.join(names)},) = {name}")
        for part, node in zip(names, nodes, strict=True):
            self.node(part, node)

    def unpacked_tuple(self, name: str, cls: type, nodes: list[Node], hint: str) -> None:
        """Emits the comparison of the elements of a tuple, which its class may hide."""
        if cls.__len__ is tuple.__len__ and cls.__iter__ is tuple.__iter__:  # type: ignore[attr-defined]
            self.unpacked(name, nodes, hint)
        else:
            self.unpacked(f"{self.source.const(elements_of, 'elements_of')}({name})", nodes, hint)

    def _elements(self, name: str, holder: Holder, entries: Entries) -> None:
        if isinstance(holder.value, deque):
            self._limit(f"{name}.maxlen", holder)
            plain = type(holder.value) is deque
        else:
            plain = type(holder.value) is list
        if self.all_at_once(name, holder, entries):
            return
        nodes = [node for _, node in entries]
        self.unpacked(name if plain else f"{self.source.const(elements_of, 'elements_of')}({name})", nodes, name)

    def _members(self, name: str, holder: Holder, entries: Entries) -> None:
        self.constant(name, holder.value)  # sets of numbers and strings are compared as values
        # Objects in a set have no place by which another could be found, so they must be the same ones.
        objects = [node for _, node in entries if not isinstance(node, ValueAt)]
        if objects:
            ids = frozenset(map(id, set.__iter__(holder.value)))
            self.source.refuse_if(f"frozenset(map(id, {name})) != {self.source.const(ids, 'ids')}")
            for node in objects:
                if not isinstance(node, ObjectAt):
                    self.node(self.source.const(self.objects.found_at(node), "member"), node)
                elif node.position not in self._locals:
                    value = self.objects.holders[node.position].value
                    self.holder(self.source.const(value, "member"), node.position)

    def _attributes(self, name: str, holder: Holder, table: Table, entries: Entries) -> None:
        attributes = holder.value.__dict__
        plain = [(str(k), n.value) for k, n in entries if isinstance(n, ValueAt) and not may_change(n.value)]
        length = len(attributes) if table.only is None else None
        if len(plain) >= _SEVERAL and type(attributes) is dict:
            self.source.refuse_if(f"not {self._same_attributes(length, dict(plain))}({name}.__dict__)")
            keys = {key for key, _ in plain}
            entries = [entry for entry in entries if entry[0] not in keys]
            if not entries:
                return
            length = None
        local = self.source.fresh(f"{name}_attributes")
        self.source.line(f"{local} = {name}.__dict__")
        if length is not None:
            self.source.refuse_if(f"len({local}) != {length}")
        self._by_name(local, entries)

    def _same_attributes(self, length: int | None, plain: dict[str, Any]) -> str:
        """Returns the name of what compares several attributes at once."""
        kind = (length, *plain, *map(id, plain.values()))
        same = self._same.get(kind)
        if same is None:
            same = self._same[kind] = SameAttributes(length, tuple(plain), tuple(plain.values()))
        return self.source.const(same, "same_attributes")

    def _by_name(self, local: str, entries: Entries) -> None:
        for key, node in entries:
            part = self.source.fresh(f"{local}_{key}")
            absent = self.source.const(_ABSENT, "absent")
            k = repr(key) if type(key) in (str, int) else self.source.const(key, "key")
            read = f"{local}.get({k}, {absent})"
            if isinstance(node, ValueAt):  # the commonest entries: Python compiles one line faster than two
                self._value(part, node, read)
            else:
                self.source.line(f"{part} = {read}")
                self.node(part, node)

    def _items(self, name: str, holder: Holder, entries: Entries) -> None:
        if isinstance(holder.value, defaultdict):
            self._limit(f"{name}.default_factory", holder)
        if self.all_at_once(name, holder, entries):
            return
        keys = [key for key, _ in entries]
        if not any(isinstance(key, TensorAt) for key in keys):
            same = self.source.const(same_keys, "same_keys")
            self.source.refuse_if(f"not {same}({name}, {self.source.const(tuple(keys), 'keys')})")
            plain = name
            if type(holder.value).get is not dict.get:  # what a class makes of `get` does not count
                plain = self.source.fresh(f"{name}_items")
                self.source.line(f"{plain} = {self.source.const(dict, 'dict')}({name})")
            self._by_name(plain, entries)
            return
        parts = self.source.fresh(f"{name}_items")
        self.source.line(f"{parts} = {self.source.const(items_of, 'items_of')}({name})")
        self.unpacked(parts, [part for key, node in entries for part in (_key(key), node)])

    def _view(self, name: str, table: Table, entries: Entries) -> None:
        """Emits the comparison of a view; only a walk with `whole_modules` has more than hooks of a module."""
        if table.kind in HOOKS:
            self._by_name(f"{name}.{table.kind}", entries)
            return
        assert table.kind == "held"
        view = self.source.fresh(f"{name}_view")
        self.source.line(f"{view} = {self.source.const(Table.view_of, 'view_of')}({name})")
        self.source.refuse_if(f"[*{view}] != {[key for key, _ in entries]}")
        self._by_name(view, entries)

    def _weakly(self, name: str, entries: Entries) -> None:
        parts = self.source.fresh(f"{name}_items")
        self.source.line(f"{parts} = [part for item in {name}.items() for part in item]")
        self.unpacked(parts, [part for key, node in entries for part in (_key(key), node)])

    def _keys(self, name: str, entries: Entries) -> None:
        """Emits the comparison of what keys hold that are objects; an earlier line compares the keys."""
        keys = self.source.fresh(f"{name}_keys")
        self.source.line(f"{keys} = list({self.source.const(dict.keys, 'keys_of')}({name}))")
        for position, node in entries:
            if isinstance(node, ObjectAt):
                key = self.source.fresh(f"{name}_key")
                self.source.line(f"{key} = {keys}[{position}]")
                self.node(key, node)

    def _slots(self, name: str, table: Table, entries: Entries) -> None:
        present = dict(entries)
        for key in table.only or ():
            if key not in present:
                self.source.refuse_if(f"hasattr({name}, {key!r})")
                continue
            part = self.source.fresh(f"{name}_{key}")
            self.source.line(f"{part} = getattr({name}, {key!r}, {self.source.const(_ABSENT, 'absent')})")
            self.node(part, present[key])

    def _cells(self, function: types.FunctionType, entries: Entries) -> None:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for key, node in entries:
            cell = self.source.const(cells[str(key)], f"cell_{key}")
            part = self.source.fresh(str(key))
            self.source.line(f"{part} = {cell}.cell_contents")
            self.node(part, node)

    def _class(self, name: str, cls: type, entries: Entries) -> None:
        """Emits one comparison of names and methods of a class, and then that of its data."""
        methods = self.source.const(ClassGuard(cls, entries), f"{name}_methods")
        same = self.source.const(hooks.same_items, "same_items")
        self.source.refuse_if(f"not {same}({methods}.kept) and not {methods}.fits()")
        local = self.source.const(vars(cls), f"{name}_attributes")
        self._by_name(local, [entry for entry in entries if not is_method(entry[1])])

    def _globals(self, function: types.FunctionType, table: Table, entries: Entries) -> None:
        local = self.source.const(table.mapping(function), "module_globals")
        self._by_name(local, entries)

    def _one_by_one(self, name: str, holder: Holder, table: Table, entries: Entries) -> None:
        """Emits the comparison of attributes that no dict holds, and the state of a generator."""
        for key, node in entries:
            part, text = self.source.fresh(f"{name}_{str(key).partition('(')[0]}"), f"{name}.{key}"
            if table.kind == "state":
                text = f"{self.source.const(_torch.generator.generator_state, 'generator_state')}({name})"
            if table.kind == "grad" and not holder.value.is_leaf:
                text = f"{self.source.const(Table.gradient_of, 'gradient_of')}({name})"
            self.source.line(f"{part} = {text}")
            self.node(part, node)


def _key(key: object) -> Node:
    return key if isinstance(key, TensorAt) else ValueAt(key)
