"""When does a compiled entry fit a call: the first part of its generated function, which reads every leaf."""

from __future__ import annotations

import inspect
import linecache
import math
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, MutableSet, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import optree
import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base.codegen import GuardedSource, Source
from subclass_aot.base.put_back import PutBack
from subclass_aot.base.tricks import is_on
from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, passed_twice
from subclass_aot.engine.facts import Facts, Kind, modes_in
from subclass_aot.engine.guards.aliasing_guards import refuse_other_relations
from subclass_aot.engine.guards.lines import Elements
from subclass_aot.engine.guards.module_guards import refuse_other_modules
from subclass_aot.engine.guards.static_input_cache import Found, StaticInputCache, positions_to_keep
from subclass_aot.engine.guards.structure import is_plain, take_apart
from subclass_aot.engine.guards.tables import TabledValue, tabled
from subclass_aot.engine.guards.tensor_guards import TensorGuards, patterns_of, refuse_other_specs
from subclass_aot.engine.objects import ObjectGuards
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.tables import HOOKS, MODULE_TABLES, extras_of
from subclass_aot.kit.flatten import IndexMap
from subclass_aot.meta.symbols import Symbols

GuardedFunction = Callable[..., Any]
"""`call(args, kwargs, leaves, treespec, modes, check_only=False)` gives what the program returns.

It gives `MISS` if the call does not fit. With `check_only` nothing runs, and it gives None if it fits."""


class _Miss:
    """The result of a generated function for a call that it does not fit; programs may return None."""

    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The names of what a guard has read, in the function that it is a part of.

    Attributes:
        values: An expression for each tensor of the call, then for each of its views.
        leaves: An expression for each of their flat slots.
        listing: Several of these with commas between, as short as it goes.
    """

    values: Sequence[str]
    leaves: Sequence[str]
    listing: Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True, eq=False)
class GuardOptions:
    """What a guard compares beside what the signature says.

    Attributes:
        facts: All that counts of the call that the entry was made for; those that `relations_of` lists are enough.
        fn: What is called; it may hold lists and dicts that are arguments, too.
        together: What the guards of one function keep from call to call; they forget together.
        within_dynamo: Whether Dynamo's guards ran before, so that only what these do not see is checked here.
    """

    facts: Facts
    fn: Callable[..., Any] | None = None
    together: MutableSet[StaticInputCache] | None = None
    within_dynamo: bool = False


def write_guarded(
    arguments: Arguments, signature: JointSignature, options: GuardOptions, body: Callable[[Source, Reads], None]
) -> GuardedFunction:
    """Generates the function of one entry: a guard, and what runs if a call fits.

    Args:
        arguments: The call that the entry was made for.
        signature: Its signature.
        options: What else is compared.
        body: Appends what runs, and returns.
    """
    writer = _GuardWriter(arguments, signature, options.facts, options.within_dynamo)
    read = writer.write_rest(options) if options.within_dynamo else writer.write(options)
    body(writer.source, writer.reads)
    call = writer.source.build()
    if read:
        call.__source__ += f"\n\n{read}"  # type: ignore[attr-defined]
    return call


class _GuardWriter:
    """Emits the parts of a guard one after the other: what is cheap and often differs comes first."""

    def __init__(self, arguments: Arguments, signature: JointSignature, facts: Facts, within_dynamo: bool) -> None:
        self.arguments = arguments
        self.signature = signature
        self.facts = facts
        self.patterns = patterns_of(arguments, signature, facts)
        self.elements = Elements()
        doc = "Runs what was compiled, or gives MISS if that does not fit the call."
        params = "args, kwargs, leaves, treespec, modes, check_only=False"
        self.source = GuardedSource("call", params, doc, (MISS, "MISS"))
        self.kept = self.positions_to_keep() if hooks.one_call_pays and not within_dynamo else set()
        rest = set(range(len(self.patterns))) - self.kept
        in_table = {} if within_dynamo else tabled(self.patterns, rest, facts)
        self.tensors = self.reading(self.source, in_table)

    def reading(self, source: GuardedSource, in_table: dict[int, TabledValue] | None = None) -> TensorGuards:
        """Returns what emits reads of tensors and comparisons of objects in one generated function."""
        written = frozenset(change.path for change in self.signature.changes)
        objects = ObjectGuards(self.arguments.objects, source, written, self.arguments.held_by_modules)
        return TensorGuards(source, self.arguments, self.patterns, objects, self.elements, in_table)

    @property
    def reads(self) -> Reads:
        """What was read."""
        values, leaves = self.tensors.all_values(), self.tensors.all_leaves()
        return Reads(values, leaves, self.elements.listing)

    def write(self, options: GuardOptions) -> str:
        """Writes all that is checked; returns the text of what is read once, if anything is."""
        source, tensors, compared = self.source, self.tensors, frozenset[int]()
        if self.arguments.is_flat and self.arguments.keywords:
            _refuse_other_keywords(source, self.arguments)
        elif self.arguments.is_flat:
            _refuse_other_classes(tensors, self.elements)
        elif is_plain(self.arguments):
            compared = take_apart(tensors.objects, self.arguments)
        else:
            if self.arguments.flatten is not None:
                flattens = source.const(self.arguments.flatten, "flatten")
                source.line(f"leaves, treespec = {flattens}((args, kwargs))")
            _refuse_other_structure(source, options.facts)
        every = modes_in(options.facts)
        settings = {name: every.pop(name) for name in self.signature.assumptions.settings}
        if modes := tuple(every.values()):
            source.refuse_if(f"modes != {source.const(modes, 'state')}")
        for setting, value in settings.items():
            now = source.const(partial(_torch.flags.read, setting), "setting")
            source.refuse_if(f"{now}() != {source.const(value, 'value')}", setting)
        tensors.objects.leaves(compared)
        everything, kept = range(len(self.patterns)), self.kept
        holders = self.arguments.objects.holders
        held = any(holder.pinned and tensors.objects.matters(holder) for holder in holders)
        read = ""
        if kept or (hooks.one_call_pays and held):
            read = self.keep(kept, WeakSet() if options.together is None else options.together)
        elif modules := self.arguments.objects.modules:
            refuse_other_modules(source, modules, options.facts)
        rest = set(everything) - kept
        known = tensors.objects.tensors
        places = [place for place, i in self.arguments.placed if i in rest and isinstance(place, HeldPlace)]
        if not hooks.one_call_pays or any(place.pinned and place.number not in known for place in places):
            tensors.objects.pinned(self.pinned())
        tensors.read(rest)
        tensors.objects.distinct()
        values, leaves = tensors.all_values(), tensors.all_leaves()
        of_specs = refuse_other_specs(tensors, self.elements)
        self.refuse_other_attributes(tensors, rest)
        read = "\n\n".join(filter(None, (of_specs, read)))
        if self.signature.assumptions.symbols is not None:
            self.refuse_other_numbers(self.signature.assumptions.symbols)
        self.refuse_other_aliasing(options.facts, values, leaves)
        self.refuse_other_ids(values)
        # Traces see lists and dicts as copies, so the fact says that none is there twice.
        if any(fact.kind is Kind.TWICE for fact in options.facts):
            holder = options.fn if self.arguments.holds_lists() else None
            source.refuse_if(f"{source.const(partial(passed_twice, holder), 'passed_twice')}(args, kwargs)")
        source.line("if check_only: return None")
        return read

    def write_rest(self, options: GuardOptions) -> str:
        """Writes what is checked where Dynamo has checked each tensor by itself."""
        source, tensors = self.source, self.tensors
        with source.trusted():
            tensors.objects.leaves()
            tensors.objects.pinned(self.pinned())
            tensors.read(set(range(len(self.patterns))))
        values, leaves = tensors.all_values(), tensors.all_leaves()
        for read in tensors.sizes.reads:
            source.line(f"{read.local} = {read.tensor}.{read.kind}({read.dim})")
        self.refuse_other_aliasing(options.facts, values, leaves)
        return ""

    def refuse_other_aliasing(self, facts: Facts, values: list[str], leaves: list[str]) -> None:
        """Emits the comparison of the memory of tensors, and of what they have to do with others and with autograd."""
        tabled = set(map(str, self.tensors.tabled))  # whose table compares that, too
        rest = facts if not tabled else [f for f in facts if f.kind is not Kind.LEAF or f.within not in tabled]
        slots = IndexMap.of([pattern.meta for pattern in self.patterns]).slots if self.arguments.views else None
        named = zip(slots or self.signature.index_map.slots, leaves, strict=True)
        at = {f"{slot.outer}{''.join(slot.path)}": leaf for slot, leaf in named if slot.dim is None}
        refuse_other_relations(self.source, rest, values, at, self.elements.listing)

    def refuse_other_numbers(self, symbols: Symbols) -> None:
        """Emits the comparison of symbolic sizes with what the trace assumed of them."""
        self.source.globals |= {"math": math, "torch": torch}
        where = dict(symbols.assumptions())
        assumed = {fact.place: where.get(fact.place, "") for fact in self.facts if fact.kind is Kind.ASSUMED}
        self.tensors.sizes.write(self.source, assumed)

    def refuse_other_ids(self, values: list[str]) -> None:
        """Emits the check that objects know no other tensors by their ids than they knew."""
        known = self.arguments.identified
        others = ", ".join(f"id({name})" for position, name in enumerate(values) if position not in known)
        if self.arguments.addresses and others:
            addresses = self.source.const(self.arguments.addresses, "addresses")
            self.source.refuse_if(f"not {addresses}.isdisjoint(({others}, ))")

    def refuse_other_attributes(self, tensors: TensorGuards, positions: Iterable[int]) -> None:
        """Emits the check that tensors without attributes of the program have none. See Note [Absent attributes]."""
        asked = dict(self.signature.assumptions.absent)
        held = {position for place, position in self.arguments.placed if isinstance(place, HeldPlace)}
        for position in sorted(set(positions) - self.arguments.with_attributes):
            name, value, compared = tensors.locals[position], self.patterns[position].value, asked.get(position)
            cls = type(value)
            may_be_anything = position in held or (tensors is not self.tensors and compared != ())
            if may_be_anything and position not in tensors.tabled:
                tensors.source.refuse_if(f"type({name}) is not {tensors.source.const(cls, cls.__name__)}")
            if compared == ():
                continue
            if compared is None:
                extras = tensors.source.const(extras_of, "extras_of")
                tensors.source.refuse_if(f"len({name}.__dict__) != {len(vars(value))} and {extras}({name})")
            else:
                tensors.source.refuse_if(" or ".join(f"{each!r} in {name}.__dict__" for each in compared))
            tensors.objects.tables.append(f"{name}.__dict__")

    def pinned(self) -> Iterator[tuple[str, object]]:
        """Yields what is the same object at each call: what the function itself holds, and modules."""
        yield from (("fn", part) for _, part in self.arguments.held)
        yield from ((path.replace(".", "_"), module) for path, module in self.arguments.modules)

    def positions_to_keep(self) -> set[int]:
        """Finds the values that are read once. Symbolic sizes are read at each call, and their tensors with them."""
        inputs = self.signature.inputs
        positions = positions_to_keep(self.arguments, [given.meta for given in inputs])
        if self.signature.assumptions.symbols is None:
            return positions
        return {i for i in positions if not self.patterns[i].is_symbolic}

    def keep(self, positions: set[int], together: MutableSet[StaticInputCache]) -> str:
        """Emits the reads of modules, and of what they hold, in a function of its own. See Note [What is kept].

        Returns:
            The text of that function.
        """
        doc = "What is read once and not at each call, or None if it does not fit."
        once = self.reading(GuardedSource("read", "leaves", doc, (None, "None")))
        once.objects.gradients = []
        refuse_other_modules(once.source, self.arguments.objects.modules, self.facts)
        once.objects.pinned(self.pinned())
        once.read(positions)
        once.objects.distinct()
        self.refuse_other_attributes(once, positions)
        order = sorted(positions)
        leaves = [leaf for i in order for leaf in once.leaves_of[i]]
        are_leaves = set(leaves)
        wrappers = [name for name, *_ in once.checked if name not in are_leaves]
        # An argument of a later call may be the very object that is read once: one, where two were traced.
        alike = self.tensors.objects.alike(once.objects)
        parts = Found(
            values=tuple(once.locals[i] for i in order),
            leaves=tuple(leaves),
            wrappers=tuple(wrappers),
            tables=tuple(dict.fromkeys(once.objects.tables)),
            alike=tuple(alike.values()),
            owners=tuple(name for name, _ in once.objects.gradients),
            numbers=tuple(apart.table for apart in once.objects.numbers),
        )
        listed = ", ".join("(" + "".join(f"{name}, " for name in names) + ")" for names in parts)
        once.source.line(f"return {once.source.const(Found, 'Found')}({listed})")
        tables = [getattr(module, name) for _, module in self.arguments.modules for name in (*MODULE_TABLES, *HOOKS)]
        tables += _torch.modules.hooks_of_all if tables else ()
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
            alike: The positions of its objects from which arguments must differ.
            cache: The cache.
        """
        source, tensors = self.source, self.tensors
        items, found = source.fresh("items"), source.fresh("found")
        same = [f"{source.const(hooks.same_items, 'same_items')}({items})"]
        at = {position: i for i, position in enumerate(order)}
        for place, position in self.arguments.placed:
            if isinstance(place, ArgumentPlace) and position in at:  # it is marked as static
                same.append(f"{tensors.arguments_at[place.leaf]} is {found}[0][{at[position]}]")
        kept = source.const(cache, "kept")
        leaves_now = "args" if self.arguments.is_flat and not self.arguments.keywords else "leaves"
        source.line(f"{items}, {found} = {kept}.state")  # read once: another thread may exchange it
        source.line(f"if not ({' and '.join(same)}): {found} = {kept}.read({leaves_now})")
        source.refuse_if(f"{found} is None")
        names = [source.fresh(hint) for hint in ("kept_values", "kept_leaves", "kept_wrappers")]
        source.line(f"{', '.join(names)}, _, _, _, _ = {found}")
        tensors.objects.distinct_from(f"{found}[4]", alike)
        values, leaves, wrappers = [
            self.elements.of(name, len(part)) for name, part in zip(names, parts[:3], strict=True)
        ]
        tensors.locals.update(zip(order, values, strict=True))
        rest = iter(leaves)
        tensors.leaves_of.update({i: [next(rest) for _ in once.leaves_of[i]] for i in order})
        checked = {name: (value, fact) for name, value, fact in once.checked}
        now = zip((*leaves, *wrappers), (*parts.leaves, *parts.wrappers), strict=True)
        tensors.checked = [(new, *checked[old]) for new, old in now if old in checked]
        self.read_gradients(f"{found}[5]", [number for _, number in once.objects.gradients or ()])
        for i, apart in enumerate(once.objects.numbers):
            local = source.fresh("numbers")
            source.line(f"{local} = {found}[6][{i}]")
            tensors.objects.numbers_apart(local, apart)

    def read_gradients(self, owners: str, numbers: Sequence[int | None]) -> None:
        """Emits the reads of the `.grad` of tensors that are kept, and comparisons of others that are known.

        Args:
            owners: The expression of these tensors.
            numbers: The number of each gradient among the tensors of the call; None where there is none.
        """
        if not numbers:
            return
        source, tensors = self.source, self.tensors
        local = source.fresh("gradients")
        source.line(f"{local} = [*map({source.const(operator.attrgetter('grad'), 'gradient')}, {owners})]")
        names = self.elements.of(local, len(numbers))
        absent = [name for name, number in zip(names, numbers, strict=True) if number is None]
        if absent:
            classes = source.const((type(None),) * len(absent), "absent")
            same = source.const(hooks.are_exactly, "are_exactly")
            source.refuse_if(f"not {same}({classes}, {self.elements.listing(absent)})")
        for name, number in zip(names, numbers, strict=True):
            if number is not None:
                kept = tensors.locals.get(self.arguments.held_at[number])
                if kept is not None:
                    source.refuse_if(f"{name} is not {kept}")
                tensors.objects.tensors[number] = name


def _refuse_other_classes(tensors: TensorGuards, elements: Elements) -> None:
    """Unpacks arguments that are tensors one by one: their classes leave no other structure."""
    source, leaves = tensors.source, tensors.arguments.leaves
    if tensors.compares_classes:
        tensors.arguments_at = elements.of("args", len(leaves))
        source.refuse_if(f"kwargs or len(args) != {len(leaves)}")
        return
    names = tensors.arguments_at = [source.fresh(f"args_{i}") for i in range(len(leaves))]
    if hooks.one_call_pays and len(names) > _FEW:
        classes = source.const(tuple(map(type, leaves)), "classes")
        source.refuse_if(f"kwargs or not {source.const(hooks.are_exactly, 'are_exactly')}({classes}, *args)")
        tensors.of_known_class = frozenset(names)
    else:
        source.refuse_if(f"kwargs or len(args) != {len(names)}")
    source.line(f"({''.join(name + ', ' for name in names)}) = args")


def _refuse_other_keywords(source: GuardedSource, arguments: Arguments) -> None:
    """Gets arguments that are tensors, some of them by keyword: a keyword that is missing has another class."""
    names = arguments.keywords
    source.refuse_if(f"len(kwargs) != {len(names)} or len(args) != {len(arguments.leaves) - len(names)}")
    source.line(f"leaves = [*args, {', '.join(f'kwargs.get({name!r})' for name in names)}]")


def _refuse_other_structure(source: GuardedSource, facts: Facts) -> None:
    """Emits the comparison of the structure of the arguments."""
    for value in [fact.value for fact in facts if fact.kind is Kind.STRUCTURE]:
        assert isinstance(value, tuple)
        treespec, types_of_keys, _ = value
        source.refuse_if(f"treespec != {source.const(treespec, 'treespec')}")
        entries = [entry for accessor in treespec.accessors() for entry in accessor]
        if any(isinstance(e, optree.MappingEntry) and isinstance(e.entry, int | float | complex) for e in entries):
            now = f"{source.const(_types_of_keys, 'types_of_keys')}(treespec)"  # 1, 1.0 and True are equal keys
            source.refuse_if(f"{now} != {source.const(types_of_keys, 'keys')}")


def refusing_line(call: GuardedFunction, *given: object) -> str:
    """Runs a function that refuses a call, and returns the line of generated code that does, for errors.

    Args:
        call: The function.
        *given: What it is given.
    """
    if not is_on("sys.settrace"):
        return "not known, since sys.settrace is switched off"
    lines: list[str] = []
    generated = inspect.unwrap(call).__globals__["__name__"]

    def note(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_globals.get("__name__") != generated:
            return None
        if event == "return" and (argument is MISS or argument is None and frame.f_code.co_name == "read"):
            lines.append(linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip())
        return note

    with PutBack(partial(sys.settrace, sys.gettrace())):
        sys.settrace(note)
        call(*given, check_only=True)
    return lines[0] if lines else "none, when it was asked again"


def _types_of_keys(treespec: optree.PyTreeSpec) -> tuple[type, ...]:
    """Returns the classes of keys and positions on the way to each leaf."""
    return tuple([type(key) for path in treespec.paths() for key in path])


_FEW = 3
"""Up to how many arguments one comparison for each is as fast as one call, and easier to read."""
