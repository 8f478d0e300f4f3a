"""The facts of objects that a walk met: what each is, and what it holds."""

from __future__ import annotations

import types
from collections.abc import Collection, Sequence

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.facts.constants import SMALL, constant, hash_of
from subclass_aot.engine.facts.fact import LEAF, OF_ALL, Code, Constant, Fact, Hooks, Itself, Kind, Linked, Names, Value
from subclass_aot.engine.objects import Entries, Holder, Objects, nodes
from subclass_aot.engine.tables import ATOMS, HOOKS, MODULE_TABLES, Table


class ObjectReader:
    """Reads the objects of one walk.

    Args:
        objects: The walk.
        of_call: Whether the arguments of a call lead to each object first, and not the function.
        written: The paths of objects into which the program puts something.
    """

    def __init__(self, objects: Objects, of_call: Sequence[bool], written: Collection[str] = ()) -> None:
        self._objects = objects
        self._of_call = of_call
        self._written = written
        self._linked = _links(objects, of_call)
        self._paths = {id(module): path for path, module in reversed(objects.modules)}
        self._found: list[Fact] = []

    def read(self) -> list[Fact]:
        """Lists the facts of all objects, after those of flattened arguments that are no tensors."""
        for position, node in self._objects.leaves.items():
            self._node(f"{LEAF} {position}", node, True, "")
        for position, holder in enumerate(self._objects.holders):
            self._holder(position, holder)
        if self._paths and any(_torch.modules.hooks_of_all):
            self._found.append(Fact(OF_ALL, Kind.HOOKS, Hooks.of_all(), False))
        return self._found

    def _holder(self, position: int, holder: Holder) -> None:
        """Notes what an object is and what it holds, table by table."""
        value, path, of_call = holder.value, holder.path, self._of_call[position]
        label = self._linked[position].label
        is_tensor, is_function = isinstance(value, torch.Tensor), isinstance(value, types.FunctionType)
        if not is_tensor:
            self._found.append(Fact(path, Kind.CLASS, Code.of(value if is_function else type(value)), of_call, label))
        is_bare = holder.is_bare and path not in self._written or holder.is_value
        if isinstance(value, torch.nn.Module) or is_bare and not is_function and not is_tensor:
            self._found.append(Fact(path, Kind.IDENTITY, Itself(value), of_call, label))
        limit = Table.limit_of(value)
        if limit is not None:
            self._found.append(Fact(path, Kind.LIMIT, constant(limit), of_call, label))
        if isinstance(value, torch.nn.Module):
            self._module(path, value, of_call, label)
        if holder.only_grows:
            return
        for table, entries in holder.tables:
            if table.kind not in MODULE_TABLES:
                self._table(holder, table, entries, of_call, label)

    def _module(self, path: str, module: torch.nn.Module, of_call: bool, label: str) -> None:
        """Notes what a module has by name; its tensors and its submodules have facts of their own."""
        for table in MODULE_TABLES:
            kind = Kind.CHILDREN if table == _torch.modules.SUBMODULES else Kind.NAMES
            entries = [
                (name, self._paths.get(id(value), "there") if value is not None else None)
                for name, value in getattr(module, table).items()
            ]
            self._found.append(Fact(path, kind, Names(table, tuple(entries)), of_call, f"{table} of {label}"))

    def _table(self, holder: Holder, table: Table, entries: Entries, of_call: bool, label: str) -> None:
        """Notes what one table of an object holds."""
        path, kind = holder.path, table.kind
        within = f"{kind} of {label}" if table.module is None else f"globals of {table.module} in {label}"
        if kind == "members":
            self._members(holder, entries, of_call, within)
            return
        if kind in HOOKS:
            path = f"{path}.{kind}"
            self._found.append(Fact(path, Kind.HOOKS, Hooks.of(holder.value, kind), of_call, within))
        elif kind == "elements":
            self._found.append(Fact(path, Kind.LENGTH, len(entries), of_call, within))
        elif kind != "keys":
            in_order = kind in ("items", "weakly")
            keys = [key for key, _ in entries if not isinstance(key, nodes.TensorAt)]
            names = tuple(keys) if in_order else tuple(sorted(map(str, keys)))
            known = Constant(names) if ATOMS.issuperset(map(type, names)) else constant(names)
            self._found.append(Fact(path, Kind.KEYS, known, of_call, within))
        for i, (key, node) in enumerate(entries):
            is_tensor = isinstance(key, nodes.TensorAt)
            where = f"{path}[tensor {i}]" if is_tensor else table.path(holder.path, key, i)
            if isinstance(key, nodes.TensorAt):
                self._node(f"a key of {where}", key, of_call, f"{within}, {i}")
            at = f"{within}, {key if isinstance(key, str) else i}"  # attributes have no order that counts
            number = node.value if isinstance(node, nodes.ValueAt) else None
            if kind == "class" and isinstance(node, nodes.ValueAt) and Table.is_method(node.value):
                self._found.append(Fact(where, Kind.METHOD, Code.of(node.value), of_call, at))
            elif type(number) is int and abs(number) >= SMALL and (told := hash_of(holder.value, number)) is not None:
                self._found.append(Fact(where, Kind.VALUE, told, of_call, at))
            else:
                self._node(where, node, of_call, at)

    def _members(self, holder: Holder, entries: Entries, of_call: bool, within: str) -> None:
        """Notes what a set holds, which has no order. Objects in it must be the same ones."""
        values = {node.value for _, node in entries if isinstance(node, nodes.ValueAt)}
        self._found.append(Fact(holder.path, Kind.VALUE, constant(values), of_call, within))
        others = [(i, node) for i, (_, node) in enumerate(entries) if not isinstance(node, nodes.ValueAt)]
        for i, node in others:
            self._node(f"{holder.path}[{i}]", node, of_call, f"{within}, {i}")
        if others:
            ids = tuple(sorted(map(id, set.__iter__(holder.value))))
            self._found.append(Fact(holder.path, Kind.IDENTITY, ids, of_call, within))

    def _node(self, path: str, node: nodes.Node, of_call: bool, within: str) -> None:
        """Notes what stands at a place."""
        found: Value
        kind = Kind.STANDS
        match node:
            case nodes.ValueAt(value=value):
                cls = type(value)
                if issubclass(cls, types.FunctionType | type):  # a weak proxy says that it is one
                    kind, found = Kind.CODE, Code.of(value)
                else:
                    kind, found = Kind.VALUE, Constant(value) if cls in ATOMS else constant(value)
            case nodes.TensorAt():
                found = "a tensor"
            case nodes.NumberAt():
                found = "a number below zero" if node.is_negative else "a number"
            case nodes.ObjectAt():
                kind, found = Kind.OBJECT, self._linked[node.position]
            case nodes.WeakAt():
                found = Code.of(type(node.value))
                self._node(f"{path}()", node.target, of_call, within)
            case nodes.TupleAt():
                found = Code.of(node.cls)
                for step, part in zip(nodes.steps_of(node.cls, len(node.parts)), node.parts, strict=True):
                    self._node(path + step, part, of_call, within)
        self._found.append(Fact(path, kind, found, of_call, within))


def _links(objects: Objects, of_call: Sequence[bool]) -> list[Linked]:
    """Returns a name for each object.

    Those of the call and those of the function are counted apart, since a file may go without.
    """
    counts = {"call": 0, "function": 0}
    found = []
    for holder, is_of in zip(objects.holders, of_call, strict=True):
        of = "call" if is_of else "function"
        found.append(Linked(holder.path, f"{of} {counts[of]}"))
        counts[of] += 1
    return found
