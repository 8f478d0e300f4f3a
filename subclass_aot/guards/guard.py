"""When does a compiled entry fit a call: one generated function that checks, and reads every leaf on the way."""

from __future__ import annotations

import linecache
import math
import sys
import types
from collections.abc import Callable, Iterator, MutableSet
from typing import Any

import optree
import torch

from subclass_aot import _native
from subclass_aot.call import ArgumentPlace, Arguments, HeldPlace
from subclass_aot.codegen import Source
from subclass_aot.guards.aliasing_guards import (
    leaves_of,
    refuse_other_autograd_leaves,
    refuse_other_histories,
    refuse_other_storages,
)
from subclass_aot.guards.lines import Elements, refuse_if
from subclass_aot.guards.modes import Modes, global_state
from subclass_aot.guards.module_guards import refuse_other_modules
from subclass_aot.guards.static_input_cache import Found, StaticInputCache, positions_to_keep
from subclass_aot.guards.tensor_guards import TensorGuards, patterns_of, refuse_other_specs
from subclass_aot.meta import Spec, is_symbolic
from subclass_aot.objects import ObjectGuards
from subclass_aot.tables import HOOKS, MODULE_TABLES
from subclass_aot.trace import JointSignature

Guard = Callable[[list[Any], optree.PyTreeSpec], tuple[list[Any], list[Any]] | None]
"""`guard(argument_leaves, treespec)` gives the tensors of a call and their flat slots, or None if it does not fit."""


def make_guard(
    arguments: Arguments,
    signature: JointSignature,
    state: Modes,
    together: MutableSet[StaticInputCache] | None = None,
) -> Guard:
    """Generates the guard of one entry.

    Args:
        arguments: The call that the entry was made for.
        signature: Its signature.
        state: `global_state()` of that call.
        together: What the guards of one function keep from call to call; they forget together.
    """
    return _GuardWriter(arguments, signature).write(state, set() if together is None else together)


class _GuardWriter:
    """Puts the parts of a guard one after the other: what is cheap and often differs comes first."""

    def __init__(self, arguments: Arguments, signature: JointSignature) -> None:
        self.arguments = arguments
        self.signature = signature
        self.patterns = patterns_of(arguments, signature)
        self.elements = Elements()
        doc = "The tensors of a call and their leaves, or None if it does not fit."
        self.source = Source("guard", "leaves, treespec", doc)
        self.tensors = self.reading(self.source)

    def reading(self, source: Source) -> TensorGuards:
        """Makes what reads tensors and compares objects in one generated function."""
        written = frozenset(change.path for change in self.signature.outcome.changes)
        objects = ObjectGuards(self.arguments.objects, source, written)
        return TensorGuards(source, self.arguments, self.patterns, objects)

    def write(self, state: Modes, together: MutableSet[StaticInputCache]) -> Guard:
        """Generates the function."""
        source, tensors = self.source, self.tensors
        _refuse_other_structure(source, self.arguments.treespec)
        refuse_if(source, f"{source.const(global_state, 'global_state')}() != {source.const(state, 'state')}")
        tensors.objects.leaves()
        everything = range(len(self.patterns))
        kept = self.positions_to_keep() if _native.ONE_CALL_PAYS else set()
        holders = self.arguments.objects.holders
        held = any(holder.pinned and tensors.objects.matters(holder) for holder in holders)
        read = ""
        if kept or (_native.ONE_CALL_PAYS and held):
            read = self.keep(kept, together)
        else:
            refuse_other_modules(source, self.arguments.modules)
        rest = set(everything) - kept
        places = self.arguments.placed
        if not _native.ONE_CALL_PAYS or any(isinstance(p, HeldPlace) and p.pinned and i in rest for p, i in places):
            tensors.objects.pinned(self.pinned())
        tensors.read(rest)
        tensors.objects.told_apart()
        values = [tensors.locals[i] for i in everything]
        leaves = [leaf for i in everything for leaf in tensors.leaves_of[i]]
        refuse_other_specs(tensors, self.elements)
        self.refuse_other_numbers(leaves)
        refuse_other_autograd_leaves(source, self.arguments, self.signature, values)
        if self.signature.writes:
            real = leaves_of(self.arguments, self.signature)
            refuse_other_storages(source, self.signature, real, leaves)
            refuse_other_histories(source, self.arguments, self.signature, real, values)
        inputs = leaves[: len(self.signature.index_map.slots)]  # the leaves of views are read to be checked only
        source.line(f"return [{self.elements.listing(values)}], [{self.elements.listing(inputs)}]")
        guard = source.build()
        if read:
            guard.__source__ += f"\n\n{read}"  # type: ignore[attr-defined]
        return guard

    def refuse_other_numbers(self, leaves: list[str]) -> None:
        """Compares symbolic sizes with what the trace assumed of them, and values that it read."""
        if self.signature.symbols is not None:
            self.source.globals |= {"math": math, "torch": torch}
            for line in self.tensors.sizes.lines(self.signature.symbols):
                self.source.line(line)
        for slot, values in self.signature.read:
            refuse_if(self.source, f"{leaves[slot]}.tolist() != {self.source.const(values, 'values')}")

    def pinned(self) -> Iterator[tuple[str, object]]:
        """Yields what is the same object at each call: what the function itself holds, and modules."""
        yield from (("fn", part) for _, part in self.arguments.held)
        yield from ((path.replace(".", "_"), module) for path, module in self.arguments.modules)

    def positions_to_keep(self) -> set[int]:
        """Finds the values that are read once. Symbolic sizes are read at each call, and their tensors with them."""
        inputs = self.signature.inputs
        positions = positions_to_keep(self.arguments, [given.meta for given in inputs])
        return {i for i in positions if not any(map(_is_symbolic, inputs[i].specs))}

    def keep(self, positions: set[int], together: MutableSet[StaticInputCache]) -> str:
        """Reads modules and what they hold in a function of its own, once. See Note [What is kept].

        Returns:
            The text of that function.
        """
        doc = "What is read once and not at each call, or None if it does not fit."
        once = self.reading(Source("read", "leaves", doc))
        refuse_other_modules(once.source, self.arguments.modules)
        once.objects.pinned(self.pinned())
        once.read(positions)
        once.objects.told_apart()
        order = sorted(positions)
        leaves = [leaf for i in order for leaf in once.leaves_of[i]]
        are_leaves = set(leaves)
        wrappers = [name for name, _ in once.checked if name not in are_leaves]
        # An argument of a later call may be the very object that is read once: one, where two were traced.
        alike = self.tensors.objects.alike(once.objects)
        parts = Found(
            values=tuple(once.locals[i] for i in order),
            leaves=tuple(leaves),
            wrappers=tuple(wrappers),
            tables=tuple(dict.fromkeys(once.objects.tables)),
            alike=tuple(alike.values()),
        )
        listed = ", ".join("(" + "".join(f"{name}, " for name in names) + ")" for names in parts)
        once.source.line(f"return {once.source.const(Found, 'Found')}({listed})")
        tables = [getattr(module, name) for _, module in self.arguments.modules for name in (*MODULE_TABLES, *HOOKS)]
        self.use(once, order, parts, list(alike), StaticInputCache(once.source.build(), tables, together))
        return str(once.source)

    def use(
        self, once: TensorGuards, order: list[int], parts: Found, alike: list[int], cache: StaticInputCache
    ) -> None:
        """Writes what takes values from the cache, or reads them anew where something is another object.

        Args:
            once: What reads them.
            order: Their positions.
            parts: What that function calls what it gives.
            alike: The positions of its objects that arguments must be told apart from.
            cache: The cache.
        """
        source, tensors = self.source, self.tensors
        items, found = source.fresh("items"), source.fresh("found")
        same = [f"{source.const(_native.same_items, 'same_items')}({items})"]
        for place, position in self.arguments.placed:
            if isinstance(place, ArgumentPlace) and position in order:  # it is marked as static
                same.append(f"leaves[{place.leaf}] is {found}[0][{order.index(position)}]")
        kept = source.const(cache, "kept")
        source.line(f"{items}, {found} = {kept}.state")  # read once: another thread may exchange it
        source.line(f"if not ({' and '.join(same)}): {found} = {kept}.read(leaves)")
        refuse_if(source, f"{found} is None")
        names = [source.fresh(hint) for hint in ("kept_values", "kept_leaves", "kept_wrappers")]
        source.line(f"{', '.join(names)}, _, _ = {found}")
        tensors.objects.told_apart_from(f"{found}[4]", alike)
        values, leaves, wrappers = [
            self.elements.of(name, len(part)) for name, part in zip(names, parts[:3], strict=True)
        ]
        tensors.locals.update(zip(order, values, strict=True))
        rest = iter(leaves)
        tensors.leaves_of.update({i: [next(rest) for _ in once.leaves_of[i]] for i in order})
        value_of = dict(once.checked)
        now = zip((*leaves, *wrappers), (*parts.leaves, *parts.wrappers), strict=True)
        tensors.checked = [(new, value_of[old]) for new, old in now]


def _refuse_other_structure(source: Source, treespec: optree.PyTreeSpec) -> None:
    """Compares the structure of the arguments."""
    refuse_if(source, f"treespec != {source.const(treespec, 'treespec')}")
    entries = [entry for accessor in treespec.accessors() for entry in accessor]
    if any(isinstance(e, optree.MappingEntry) and isinstance(e.entry, int | float | complex) for e in entries):
        types_of_keys = source.const(_types_of_entries(treespec), "types_of_keys")  # 1, 1.0 and True are equal keys
        refuse_if(source, f"{source.const(_types_of_entries, 'types_of_entries')}(treespec) != {types_of_keys}")


def refusing_line(guard: Guard, leaves: list[Any], treespec: optree.PyTreeSpec) -> str:
    """Runs a guard that refuses a call, and returns the line of generated code that does, for errors."""
    lines: list[str] = []

    def note(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_globals.get("__name__") != guard.__globals__["__name__"]:
            return None
        if event == "return" and argument is None:
            lines.append(linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip())
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        guard(leaves, treespec)
    finally:
        sys.settrace(before)
    return lines[0] if lines else "none, when it was asked again"


def _is_symbolic(pattern: object) -> bool:
    return is_symbolic(pattern) or isinstance(pattern, Spec) and pattern.solver is not None


def _types_of_entries(treespec: optree.PyTreeSpec) -> list[tuple[type, ...]]:
    """Returns the classes of keys and positions on the way to each leaf."""
    return [tuple(map(type, path)) for path in treespec.paths()]
