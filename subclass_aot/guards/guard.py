"""When does a compiled entry fit a call: one generated function that checks, and reads every leaf on the way."""

from __future__ import annotations

import copy
import itertools
import linecache
import math
import sys
import types
from collections.abc import Callable, Iterator, MutableSet
from typing import Any

import optree
import torch

from subclass_aot import _native, _torch
from subclass_aot.call import (
    AUTOCAST_DEVICES,
    HOOKS,
    ArgumentPlace,
    Arguments,
    HeldPlace,
    ModulePlace,
    autograd_base,
    has_storage,
    storage_groups,
    vars_of_number,
)
from subclass_aot.codegen import Source
from subclass_aot.declaration import Declaration, attributes_of
from subclass_aot.flatten import (
    SYMBOLIC,
    AbsentMeta,
    ContainerMeta,
    FlattenPlan,
    PlainTensorMeta,
    SubclassCreationMeta,
)
from subclass_aot.guards.constants import same_constant
from subclass_aot.guards.object_guards import ObjectGuards
from subclass_aot.guards.size_guards import SizeGuards
from subclass_aot.guards.static_input_cache import StaticInputCache, positions_to_keep
from subclass_aot.meta import Spec
from subclass_aot.symbols import is_symbolic
from subclass_aot.trace import JointSignature

Guard = Callable[[list[Any], Any], "tuple[list[Any], list[Any]] | None"]
"""`guard(argument_leaves, treespec)` gives the tensors of a call and their flat slots, or None if it does not fit."""


def global_state() -> tuple[Any, ...]:
    """The modes that change what a program does, in the order of `MODES`; what is mostly off comes cheap."""
    deterministic = torch.get_deterministic_debug_mode()
    fills = bool(deterministic) and torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    autocast: tuple[Any, ...] = ()
    if _torch.is_any_autocast_enabled():
        autocast = tuple(torch.get_autocast_dtype(d) for d in AUTOCAST_DEVICES if torch.is_autocast_enabled(d))
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        deterministic,
        fills,
        autocast,
        _torch.function_modes() if _torch.number_of_function_modes() else (),
        _torch.inside_transform(),
    )


MODES = (
    "grad mode",
    "inference mode",
    "default dtype",
    "deterministic debug mode",
    "deterministic fill of uninitialized memory",
    "autocast",
    "default device and function modes",
    "transforms of torch.func and forward-mode gradients",
)
"""The names of what `global_state` gives."""


def make_guard(
    arguments: Arguments,
    signature: JointSignature,
    state: tuple[Any, ...],
    together: MutableSet[StaticInputCache] | None = None,
) -> Guard:
    """Generates the guard of one entry.

    Args:
        arguments: The call that the entry was made for.
        signature: Its signature.
        state: `global_state()` of that call.
        together: What the guards of one function keep from call to call; they forget together.
    """
    return _GuardWriter(arguments, signature, state, set() if together is None else together).write()


class _GuardWriter:
    def __init__(
        self,
        arguments: Arguments,
        signature: JointSignature,
        state: tuple[Any, ...],
        together: MutableSet[StaticInputCache],
    ) -> None:
        self.arguments = arguments
        self.signature = signature
        plan = FlattenPlan(tuple(given.meta for given in signature.inputs), "inputs")
        self.views, leaves_of_views = FlattenPlan.read(arguments.views, where="views")
        self.leaves = [*plan.unwrap(arguments.values), *leaves_of_views]
        self.state = state
        self.together = together
        doc = "The tensors of a call and their leaves, or None if it does not fit."
        self.source = Source("guard", "leaves, treespec", doc)
        self.outer: list[str] = []
        self.inner: list[str] = []
        self.by_value: dict[int, str] = {}
        self.leaves_of: dict[int, list[str]] = {}
        self.helpers: list[str] = []
        self.kept_at: dict[str, tuple[str, int, int]] = {}
        self.checked: list[tuple[str, Any]] = []
        self.sizes = SizeGuards()

    def write(self) -> Guard:
        const = self.source.const
        treespec = self.arguments.treespec
        self.refuse_if(f"treespec != {const(treespec, 'treespec')}")
        if any(isinstance(e, optree.MappingEntry) and _is_number(e.entry) for a in treespec.accessors() for e in a):
            types = const(_types_of_entries(treespec), "types_of_keys")  # 1, 1.0 and True are equal keys
            self.refuse_if(f"{const(_types_of_entries, 'types_of_entries')}(treespec) != {types}")
        self.refuse_if(f"{const(global_state, 'global_state')}() != {const(self.state, 'state')}")
        objects = self.objects = self.object_guards()
        objects.leaves()
        everything = set(range(len(self.arguments.values) + len(self.arguments.views)))
        kept = self.positions_to_keep() if _native.ONE_CALL_PAYS else set()
        held = any(h.pinned and objects.matters(h) for h in self.arguments.objects.holders)
        if kept or (_native.ONE_CALL_PAYS and held):
            self.keep(kept)
        else:
            self.modules()
        rest = everything - kept
        places = zip(self.arguments.places, self.arguments.value_at, strict=True)
        if not _native.ONE_CALL_PAYS or any(isinstance(p, HeldPlace) and p.pinned and i in rest for p, i in places):
            objects.pinned()
        self.tensors(rest)
        objects.told_apart()
        self.outer = [self.by_value[i] for i in sorted(everything)]
        self.inner = [leaf for i in sorted(everything) for leaf in self.leaves_of[i]]
        self.specs()
        self.symbols()
        for slot, values in self.signature.read:
            self.refuse_if(f"{self.inner[slot]}.tolist() != {self.source.const(values, 'values')}")
        self.autograd_leaves()
        if self.signature.writes:
            self.storages()
            self.histories()
        inputs = len(self.signature.index_map.slots)  # the leaves of views are read to be checked only
        self.source.line(f"return [{self.listing(self.outer)}], [{self.listing(self.inner[:inputs])}]")
        del self.objects  # it has a method of this writer
        guard = self.source.build()
        guard.__source__ = "\n\n".join([guard.__source__, *self.helpers])  # type: ignore[attr-defined]
        return guard

    def refuse_if(self, condition: str) -> None:
        self.source.line(f"if {condition}: return None")

    def object_guards(self) -> ObjectGuards:
        """What compares objects, in the function that is written now."""
        written = frozenset(change.path for change in self.signature.outcome.changes)
        return ObjectGuards(self.arguments, self.source, written, self.constant)

    def constant(self, name: str, value: Any) -> None:
        """A Python value must be equal and of one type; what has no useful equality must be the same object.

        A value without a hash may change, and so may attributes of one, so a copy of it is kept, if that is equal.
        """
        if value is None or isinstance(value, bool):
            self.refuse_if(f"{name} is not {value!r}")
            return
        try:
            changes = type(value).__hash__ is None or vars_of_number(value)
            kept = copy.deepcopy(value) if changes else value
        except Exception:  # it cannot be copied
            kept = value
        if not same_constant(value, kept):
            kept = value
        hint = name if name.isidentifier() else "constant_" + name
        local = self.source.const(kept, hint)
        if isinstance(value, type) or callable(value) and not isinstance(value, types.MethodType):
            self.refuse_if(f"{name} is not {local}")
        else:
            same = self.source.const(same_constant, "same_constant")
            self.refuse_if(f"{name} is not {local} and not {same}({name}, {local})")

    def positions_to_keep(self) -> set[int]:
        """The values that are read once. Symbolic sizes are read at each call, and their tensors with them."""
        inputs = self.signature.inputs
        positions = positions_to_keep(self.arguments, [given.meta for given in inputs])
        return {i for i in positions if not any(map(_is_symbolic, inputs[i].specs))}

    def keep(self, positions: set[int]) -> None:
        """Reads modules and what they hold in a function of its own, once. See Note [What is kept]."""
        guard = self.source
        self.source = Source("read", "leaves", "What is read once and not at each call, or None if it does not fit.")
        outer, self.objects = self.objects, self.object_guards()
        self.modules()
        self.objects.pinned()
        self.tensors(positions)
        self.objects.told_apart()
        of_objects, self.objects, inside = self.objects.tables, outer, self.objects
        order, value_of = sorted(positions), dict(self.checked)
        leaves = [leaf for i in order for leaf in self.leaves_of[i]]
        wrappers = [name for name in value_of if name not in set(leaves)]
        alike = outer.alike(inside)
        parts = [self.by_value[i] for i in order], leaves, wrappers, list(dict.fromkeys(of_objects)), [*alike.values()]
        self.source.line(f"return {', '.join('(' + ''.join(n + ', ' for n in names) + ')' for names in parts)}")
        read, self.source = self.source, guard

        tables = [getattr(module, name) for _, module in self.arguments.modules for name in (*_CONTENTS, *HOOKS)]
        kept = guard.const(StaticInputCache(read.build(), tables, self.together), "kept")
        self.helpers.append(str(read))
        items, found = guard.fresh("items"), guard.fresh("found")
        same = [f"{guard.const(_native.same_items, 'same_items')}({items})"]
        for place, position in zip(self.arguments.places, self.arguments.value_at, strict=True):
            if position in positions and isinstance(place, ArgumentPlace):
                same.append(f"leaves[{place.leaf}] is {found}[0][{order.index(position)}]")
        guard.line(f"{items}, {found} = {kept}.state")
        guard.line(f"if not ({' and '.join(same)}): {found} = {kept}.read(leaves)")
        self.refuse_if(f"{found} is None")
        names = [guard.fresh(hint) for hint in ("kept_values", "kept_leaves", "kept_wrappers")]
        guard.line(f"{', '.join(names)}, _, _ = {found}")
        outer.told_apart_from(f"{found}[4]", list(alike))
        now = [self.elements(name, len(part)) for name, part in zip(names, parts, strict=False)]

        self.by_value.update(zip(order, now[0], strict=True))
        rest = iter(now[1])
        self.leaves_of.update({i: list(itertools.islice(rest, len(self.leaves_of[i]))) for i in order})
        self.checked = [(new, value_of[old]) for k in (1, 2) for new, old in zip(now[k], parts[k], strict=True)]

    def elements(self, name: str, count: int) -> list[str]:
        """The elements of a kept tuple, as expressions that `listing` knows."""
        found = {f"{name}[{i}]": (name, i, count) for i in range(count)}
        self.kept_at |= found
        return list(found)

    def listing(self, names: list[str]) -> str:
        """Expressions with commas between; elements of a kept tuple that follow one another are taken at once."""

        def run(at: tuple[int, str]) -> tuple[str, int]:
            position, name = at
            kept, index, _ = self.kept_at.get(name, (name, 0, 1))
            return kept, index - position

        listed = []
        for _, group in itertools.groupby(enumerate(names), run):
            members = [name for _, name in group]
            kept, index, count = self.kept_at.get(members[0], ("", 0, 0))
            if len(members) == 1:
                listed += members
            else:
                listed.append(f"*{kept}" if len(members) == count else f"*{kept}[{index}:{index + len(members)}]")
        return ", ".join(listed)

    def modules(self) -> None:
        """The tree of modules, the names of what they hold, and their hooks."""
        for path, module in self.arguments.modules:
            conditions = []
            for table in _CONTENTS[:2]:
                content = getattr(module, table)
                t = self.source.const(content, f"{path}_{table}".replace(".", "_"))
                if content:
                    conditions.append(f"len({t}) != {len(content)}")
                conditions += [f"{t}.get({name!r}) is not None" for name, tensor in content.items() if tensor is None]
            children = module._modules
            if children:
                t = self.source.const(children, f"{path}_modules".replace(".", "_"))
                conditions.append(f"len({t}) != {len(children)}")
                for name, child in children.items():
                    conditions.append(f"{t}.get({name!r}) is not {self.source.const(child, f'{path}_{name}')}")
            if conditions:
                self.refuse_if(" or ".join(conditions))
        tables = [t for _, m in self.arguments.modules for t in (m._parameters, m._buffers, m._modules)]
        if not all(tables):
            empty = self.source.const(tuple(t for t in tables if not t), "empty_tables")
            self.refuse_if(f"any({empty})")
        self.hooks()

    def hooks(self) -> None:
        """Hooks run while tracing; each has a number that no other hook of the process has."""
        tables = [getattr(module, name) for _, module in self.arguments.modules for name in HOOKS]
        empty = tuple(t for t in tables if not t)
        if empty:
            self.refuse_if(f"any({self.source.const(empty, 'hooks')})")
        for table in tables:
            if table:
                self.refuse_if(f"tuple({self.source.const(table, 'hooks')}) != {tuple(table)}")

    def tensors(self, positions: set[int]) -> None:
        """Reads the values at `positions`, down to the leaves; places that held one tensor must do so again."""
        by_value, extras = self.by_value, self.arguments.extras
        for number, (place, position) in enumerate(zip(self.arguments.places, self.arguments.value_at, strict=True)):
            if position not in positions:
                continue
            if isinstance(place, ArgumentPlace):
                read = f"leaves[{place.leaf}]"
            elif isinstance(place, HeldPlace):
                read = self.objects.tensors[place.number]
            else:
                assert isinstance(place, ModulePlace)
                table = getattr(place.module, place.table)
                read = f"{self.source.const(table, place.table)}.get({place.name!r})"
            if position in by_value:
                self.refuse_if(f"{read} is not {by_value[position]}")
            else:
                name = by_value[position] = self.source.fresh(place.path)
                self.source.line(f"{name} = {read}")
            if number in extras:
                self.objects.attributes(by_value[position], extras[number])
        for i, base in enumerate(self.arguments.view_of, len(self.arguments.values)):
            if i not in positions:
                continue
            if base in by_value:
                self.refuse_if(f"{by_value[i]}._base is not {by_value[base]}")
            else:  # only views of it are passed
                by_value[base] = self.source.fresh(self.arguments.path_of(base))
                self.source.line(f"{by_value[base]} = {by_value[i]}._base")
        for i in sorted(positions):
            self.inner = self.leaves_of[i] = []
            self.wrapper(by_value[i], *self.pattern(i))

    def pattern(self, i: int) -> tuple[Any, Any, Iterator[Any]]:
        """A value, or a view after these: itself, how it is made of leaves, and what those look like."""
        values, inputs = self.arguments.values, self.signature.inputs
        if i < len(values):
            return values[i], inputs[i].meta, iter(inputs[i].specs)
        view, meta = self.arguments.views[i - len(values)], self.views.metas[i - len(values)]
        _, leaves = FlattenPlan.read([view])
        return view, meta, iter([Spec.of(x) if isinstance(x, torch.Tensor) else x for x in leaves])

    def wrapper(self, name: str, value: Any, meta: Any, patterns: Iterator[Any]) -> None:
        """Checks classes and contexts down to the leaves, and reads those.

        Args:
            name: The local that holds the tensor.
            value: The tensor of the call that the entry was made for.
            meta: How it is made of leaves.
            patterns: The spec of each leaf, and symbolic sizes, in flat order.
        """
        if isinstance(meta, SubclassCreationMeta):
            cls = self.source.const(meta.cls, meta.cls.__name__)
            self.refuse_if(f"type({name}) is not {cls}")
            self.context(name, value, meta)
            self.checked.append((name, value))
            if meta.storage_offset:  # results that are made like it have it, too
                self.refuse_if(f"{name}.storage_offset() != {meta.storage_offset}")
            for attribute, inner in meta.attrs.items():
                part = getattr(value, attribute)
                local = self.source.fresh(f"{name}_{attribute}")
                self.source.line(f"{local} = {name}.{attribute}")
                self.wrapper(local, part, inner, patterns)
            for kind, numbers in ("size", meta.outer_size), ("stride", meta.outer_stride):
                for dim in [d for d, n in enumerate(numbers) if n is SYMBOLIC]:
                    self.inner.append(self.sizes.read(self.source, name, kind, dim, next(patterns)))
        elif isinstance(meta, ContainerMeta):
            kind = self.source.const(meta.cls, meta.cls.__name__)
            self.refuse_if(f"type({name}) is not {kind} or len({name}) != {len(meta.items)}")
            for key, inner in meta.items.items():
                local = self.source.fresh(f"{name}_{key}")
                k = self.source.const(key, "key")
                self.source.line(f"{local} = {name}.get({k})" if meta.cls is dict else f"{local} = {name}[{k}]")
                self.wrapper(local, value[key], inner, patterns)
        elif isinstance(meta, AbsentMeta):
            self.refuse_if(f"{name} is not None")
        elif isinstance(meta, PlainTensorMeta):
            spec = next(patterns)
            for kind, numbers in ("size", spec.size), ("stride", spec.stride):
                for dim in [d for d, n in enumerate(numbers) if is_symbolic(n)]:
                    self.sizes.read(self.source, name, kind, dim, numbers[dim])
            self.inner.append(name)
            self.checked.append((name, value))
        else:
            same = self.source.const(same_constant, "same_constant")
            self.refuse_if(f"not {same}({name}, {self.source.const(next(patterns), 'opaque')})")
            self.inner.append(name)

    def context(self, name: str, value: Any, meta: SubclassCreationMeta) -> None:
        """What `__tensor_flatten__` says beside the tensors."""
        attributes = attributes_of(meta.cls)
        if attributes is not None:
            found = attributes(tuple(meta.attrs), meta.context)
            for attribute, constant in found.items():
                c = self.source.const(constant, attribute)
                same = self.source.const(same_constant, "same_constant")
                other = f"{name}.{attribute} is not {c}"
                self.refuse_if(other if constant is None else f"{other} and not {same}({name}.{attribute}, {c})")
            declaration = Declaration.of(meta.cls)
            for field in declaration.fields.values() if declaration is not None else ():
                if field.kind == "optional" and field.name not in meta.attrs:
                    self.refuse_if(f"{name}.{field.name} is not None")
        else:
            layout = self.source.const(_same_layout, "same_layout")
            names = self.source.const(tuple(meta.attrs), "names")
            self.refuse_if(f"not {layout}({name}, {names}, {self.source.const(meta.context, 'context')})")

    def specs(self) -> None:
        """Class, dtype, device, size, stride, requires_grad and dispatch keys of every tensor, in one call."""
        first: dict[int, str] = {}
        once = []
        for name, value in self.checked:  # the check refuses to be given a tensor twice
            if id(value) in first:
                self.refuse_if(f"{name} is not {first[id(value)]}")
            else:
                first[id(value)] = name
                once.append((name, value))
        if once:
            sizes = [self.sizes.known(name, "size", list(value.size())) for name, value in once]
            strides = [self.sizes.known(name, "stride", list(value.stride())) for name, value in once]
            check = _torch.tensor_check([value for _, value in once], sizes, strides)
            self.refuse_if(f"not {self.source.const(check, 'same_specs')}({self.listing([n for n, _ in once])})")

    def symbols(self) -> None:
        """Sizes that are symbols: each has one value in the whole call, and the trace's assumptions hold of it."""
        if self.signature.symbols is None:
            return
        self.source.globals |= {"math": math, "torch": torch}
        for line in self.sizes.lines(self.signature.symbols):
            self.source.line(line)

    def autograd_leaves(self) -> None:
        """In-place writes mean another thing on a leaf than on a non-leaf."""
        for name, given in zip(self.outer, self.signature.inputs, strict=False):
            if given.requires_grad and (self.signature.grad_modes[0] or self.signature.needs_backward):
                self.refuse_if(f"{name}.is_leaf is not {given.is_leaf}")
        for name, view in zip(self.outer[len(self.signature.inputs) :], self.arguments.views, strict=True):
            rules = self.source.const(_torch.view_rules, "view_rules")
            self.refuse_if(f"{rules}({name}) != {self.source.const(_torch.view_rules(view), 'rules')}")

    def storages(self) -> None:
        """A graph that writes was made for one pattern of sharing."""
        slots = [i for i, leaf in enumerate(self.leaves) if has_storage(leaf)]
        groups = storage_groups(self.leaves)
        together = {i for group in groups for i in group}
        groups += [base.slots for base in self.signature.bases if together.isdisjoint(base.slots)]
        together.update(i for group in groups for i in group)
        for group in groups:
            first = f"{self.inner[group[0]]}.untyped_storage().data_ptr()"
            for other in group[1:]:
                self.refuse_if(f"{self.inner[other]}.untyped_storage().data_ptr() != {first}")
            for slot in group:  # how they overlap is part of the graph
                leaf = self.leaves[slot]
                self.refuse_if(f"{self.inner[slot]}.storage_offset() != {leaf.storage_offset()}")
            nbytes = self.leaves[group[0]].untyped_storage().nbytes()
            self.refuse_if(f"{first.removesuffix('data_ptr()')}nbytes() != {nbytes}")
        alone = [i for i in slots if i not in together] + [group[0] for group in groups]
        if len(alone) > 1:
            pointers = ", ".join(f"{self.inner[i]}.untyped_storage().data_ptr()" for i in alone)
            self.refuse_if(f"len({{{pointers}}}) != {len(alone)}")

    def histories(self) -> None:
        """A write that autograd sees reaches the views of one tensor, but not others that share its storage."""
        slots = self.signature.index_map.slots
        owner = self.source.const(autograd_base, "autograd_base")
        values = self.arguments.values
        groups = [{slots[s].outer for s in group if s < len(slots)} for group in storage_groups(self.leaves)]
        pairs = {(i, j) for i, _ in self.signature.autograd_mutations for g in groups if i in g for j in g if j != i}
        for i, j in sorted(pairs):
            same = autograd_base(values[i]) is autograd_base(values[j])
            self.refuse_if(f"({owner}({self.outer[i]}) is {owner}({self.outer[j]})) is not {same}")


def refusing_line(guard: Guard, leaves: list[Any], treespec: Any) -> str:
    """The line of generated code that refuses a call, for errors."""
    lines: list[str] = []

    def note(frame: types.FrameType, event: str, argument: Any) -> Any:
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


def _is_symbolic(pattern: Any) -> bool:
    return is_symbolic(pattern) or isinstance(pattern, Spec) and pattern.solver is not None


def _is_number(key: Any) -> bool:
    return isinstance(key, int | float | complex)


def _types_of_entries(treespec: optree.PyTreeSpec) -> list[tuple[type, ...]]:
    """The classes of keys and positions on the way to each leaf."""
    return [tuple(map(type, path)) for path in treespec.paths()]


def _same_layout(tensor: Any, names: tuple[str, ...], context: Any) -> bool:
    found_names, found_context = tensor.__tensor_flatten__()
    if tuple(found_names) != names:
        return False
    guard = getattr(type(tensor), "__metadata_guard__", None)
    return bool(guard(context, found_context)) if guard is not None else same_constant(found_context, context)


_CONTENTS = ("_parameters", "_buffers", "_modules")
