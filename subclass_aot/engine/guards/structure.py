"""The part of a guard that takes the arguments of a call apart, and compares their structure on the way.

Tuples, lists and dicts of Python's own classes are unpacked in generated code, which is faster than a call of optree.
All other structures are compared by optree. A long list or dict of plain values is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import optree

from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.objects import ObjectGuards, nodes
from subclass_aot.engine.tables import ATOMS

_LONG = 16
"""From how many plain values on a list or dict is compared at once."""

_PLAIN = (tuple, list, dict)


def is_plain(arguments: Arguments) -> bool:
    """Returns whether generated code can take the arguments of calls like this one apart."""
    if arguments.flatten is not None or arguments.views or arguments.is_flat:
        return False
    todo = [arguments.treespec]
    while todo:
        spec = todo.pop()
        if spec.type is dict and not all(type(key) is str for key in spec.entries()):
            return False
        if spec.type is not None and spec.type not in _PLAIN:
            return False
        todo += spec.children()
    return True


def take_apart(objects: ObjectGuards, arguments: Arguments) -> frozenset[int]:
    """Writes what takes the arguments apart into the local `leaves`.

    Args:
        objects: What writes the comparisons of plain values.
        arguments: The call that was traced.

    Returns:
        The positions of leaves that were compared on the way.
    """
    source = objects.source
    writer = _Writer(source, arguments, objects)
    for name, spec in zip(("args", "kwargs"), arguments.treespec.children(), strict=True):
        writer.node(name, spec, is_known=True)
    source.line(f"leaves = [{', '.join(writer.listed)}]")
    return frozenset(writer.compared)


@dataclass(slots=True, eq=False)
class _Writer:
    """Writes it.

    Attributes:
        source: The function.
        arguments: The call.
        objects: What writes the comparisons of plain values.
        count: How many leaves were met.
        listed: Expressions of them.
        compared: The positions of those that were compared.
    """

    source: GuardedSource
    arguments: Arguments
    objects: ObjectGuards
    count: int = 0
    listed: list[str] = field(default_factory=list)
    compared: set[int] = field(default_factory=set)

    def node(self, name: str, spec: optree.PyTreeSpec, is_known: bool = False) -> None:
        """Emits what takes apart the value of a local.

        Args:
            name: The local.
            spec: Its structure.
            is_known: Whether its class is.
        """
        if spec.type is None:
            self.listed.append(name)
            self.count += 1
            return
        cls = spec.type
        if not is_known:
            self.source.refuse_if(f"type({name}) is not {self.source.const(cls, cls.__name__)}")
        plain = self._plain_children(spec)
        if _LONG < len(plain) == spec.num_children:
            self._table(name, spec)
            return
        keys, children = list(spec.entries()), spec.children()
        if cls is dict:
            self.source.refuse_if(f"[*{name}] != {self.source.const(keys, 'keys')}" if keys else name)
        else:
            self.source.refuse_if(f"len({name}) != {len(keys)}")
        values = f"{name}.values()" if cls is dict else name
        if len(plain) > _LONG:
            self._mixed(name, values, children, plain)
            return
        names = [self.source.fresh(f"{name}_{key}") for key in keys]
        if names:
            self.source.line(f"({', '.join(names)},) = {values}")
        for part, child in zip(names, children, strict=True):
            self.node(part, child)

    def _plain_children(self, spec: optree.PyTreeSpec) -> dict[int, object]:
        """Returns the plain values among the children that come next, by their numbers."""
        found, position = {}, self.count
        for i, child in enumerate(spec.children() if spec.num_children > _LONG else ()):
            if child.type is None and _is_atom(self.arguments.objects.leaves.get(position)):
                found[i] = self.arguments.leaves[position]
            position += child.num_leaves
        return found

    def _table(self, name: str, spec: optree.PyTreeSpec) -> None:
        """Emits the comparison of a long table of plain values as a whole."""
        keys, positions = list(spec.entries()), range(self.count, self.count + spec.num_leaves)
        values = [self.arguments.leaves[i] for i in positions]
        self.objects.plain_table(name, keys if spec.type is dict else None, values)
        self.listed.append(f"*{name}.values()" if spec.type is dict else f"*{name}")
        self.compared.update(positions)
        self.count += spec.num_leaves

    def _mixed(
        self, name: str, values: str, children: Sequence[optree.PyTreeSpec], plain: Mapping[int, object]
    ) -> None:
        """Emits one comparison of the plain values of a long table, and what takes apart the rest.

        Args:
            name: The local.
            values: The expression of what is in it.
            children: The structure of that.
            plain: The plain values, by their numbers.
        """
        local = self.source.fresh(f"{name}_values")
        self.source.line(f"{local} = [*{values}]")
        others = {i: self.source.fresh(f"{name}_{i}") for i in range(len(children)) if i not in plain}
        for i, part in others.items():
            self.source.line(f"{part}, {local}[{i}] = {local}[{i}], None")
        self.objects.plain_table(local, None, [plain.get(i) for i in range(len(children))])
        for i, child in enumerate(children):
            if i in others:
                self.node(others[i], child)
                continue
            if i == 0 or i - 1 in others:
                end = next((j for j in others if j > i), len(children))
                self.listed.append(f"*{local}[{i}:{end}]")
            self.compared.add(self.count)
            self.count += 1


def _is_atom(node: nodes.Node | None) -> bool:
    """Returns whether a leaf is a plain value, that the function sees as it is."""
    return isinstance(node, nodes.ValueAt) and node.stand_in is None and type(node.value) in ATOMS
