"""The part of a guard that reads the tensors of a call, down to their leaves, and compares what they are made of."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, Place
from subclass_aot.engine.facts import Facts, Kind
from subclass_aot.engine.facts import fact as kinds
from subclass_aot.engine.guards.contexts import absent_fields, constants_of, same_layout, same_layout_of_any_size
from subclass_aot.engine.guards.lines import Elements
from subclass_aot.engine.guards.size_guards import Kind as Dims
from subclass_aot.engine.guards.size_guards import SizeGuards
from subclass_aot.engine.guards.tables import Pattern, TabledValue, lines_of, make_table
from subclass_aot.engine.objects import ObjectGuards, kept, same_constant
from subclass_aot.engine.signature import JointSignature
from subclass_aot.kit.flatten import (
    AbsentMeta,
    ContainerMeta,
    FlattenPlan,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
)


def patterns_of(arguments: Arguments, signature: JointSignature, facts: Facts) -> list[Pattern]:
    """Returns what the values of a call are compared with, and after these its views."""
    of_tensors: Any = {int(f.within): f.value for f in facts if f.kind in (Kind.TENSOR, Kind.NUMBER)}
    metas = [given.meta for given in signature.inputs]
    metas += FlattenPlan.of(arguments.views, where="views", are_given=True).metas
    values = enumerate((*arguments.values, *arguments.views))
    return [Pattern(value, metas[i], of_tensors.get(i)) for i, value in values]


class TensorGuards:
    """Emits the reads of tensors in one generated function.

    Args:
        source: The function.
        arguments: The call that was traced.
        patterns: What its values and views are compared with.
        objects: Finds those that objects hold.
        elements: The expressions of elements of lists in that function.
        tabled: What the accelerator compares and reads, by position.

    Attributes:
        locals: The expression of each value and view that was read, by position.
        leaves_of: The expressions of its leaves, and of its symbolic sizes.
        checked: Expressions of tensors whose metadata is still to be compared, each with the tensor of the call that
            was traced, and that metadata. See `refuse_other_specs`.
        sizes: Where symbolic sizes were read.
        arguments_at: The expression of each flat argument.
        of_known_class: Those whose classes were compared by then.
        tabled: As given.
    """

    # More than ten attributes: each is something that the lines which are still to be written go by.
    def __init__(
        self,
        source: GuardedSource,
        arguments: Arguments,
        patterns: list[Pattern],
        objects: ObjectGuards,
        elements: Elements | None = None,
        tabled: dict[int, TabledValue] | None = None,
    ) -> None:
        self.source = source
        self.arguments = arguments
        self.patterns = patterns
        self.objects = objects
        self.locals: dict[int, str] = {}
        self.leaves_of: dict[int, list[str]] = {}
        self.checked: list[tuple[str, torch.Tensor, kinds.Metadata]] = []
        self.sizes = SizeGuards()
        self.of_known_class: frozenset[str] = frozenset()
        self.tabled = tabled or {}
        self._elements = elements = elements or Elements()
        count = len(arguments.leaves)
        self.arguments_at = elements.of("leaves", count) if tabled else [f"leaves[{i}]" for i in range(count)]
        self._leaves_read = source.fresh("read") if self.tabled else ""

    @property
    def compares_classes(self) -> bool:
        """Whether a table compares each argument, and nothing is read of one before."""
        nothing_before = not (self.arguments.views or self.arguments.extras)
        return nothing_before and len(self.tabled) == len(self.patterns) > 0

    def all_values(self) -> list[str]:
        """Returns the expression of each value, then of each view."""
        return [self.locals[i] for i in range(len(self.patterns))]

    def all_leaves(self) -> list[str]:
        """Returns the expressions of their leaves."""
        return [leaf for i in range(len(self.patterns)) for leaf in self.leaves_of[i]]

    def read(self, positions: set[int]) -> None:
        """Emits the reads of the values at `positions`, down to leaves; places that held one tensor must hold one."""
        extras = self.arguments.extras
        left_out = set() if self.objects.gradients is None else self.arguments.objects.gradients
        for number, (place, position) in enumerate(self.arguments.placed):
            if position not in positions or isinstance(place, HeldPlace) and place.number in left_out:
                continue
            text = self._place(place)
            if position in self.locals:
                self.source.refuse_if(f"{text} is not {self.locals[position]}")
            elif text.isidentifier() or self._elements.knows(text):
                self.locals[position] = text
            else:
                name = self.locals[position] = self.source.fresh(place.path)
                self.source.line(f"{name} = {text}")
            if number in extras:
                self.objects.attributes(self.locals[position], extras[number])
        for i, base in enumerate(self.arguments.view_of, len(self.arguments.values)):
            if i in positions:
                self._base(self.locals[i], base)
        given = iter(self._elements.of(self._leaves_read, sum(value.leaves for value in self.tabled.values())))
        for i in sorted(positions):
            if i in self.tabled:
                self.leaves_of[i] = list(itertools.islice(given, self.tabled[i].leaves))
                continue
            leaves = self.leaves_of[i] = []
            _Reader(self, leaves).read(self.locals[i], *self.patterns[i])

    def refuse_by_table(
        self,
        given: list[str],
        others: list[torch.Tensor],
        sizes: list[list[int | None]],
        strides: list[list[int | None]],
    ) -> str:
        """Emits the comparison of what is tabled and of other tensors, and the reads; returns it in words.

        Args:
            given: The expressions of the other tensors.
            others: Those of the call that was traced.
            sizes: Their sizes; None may be anything.
            strides: Likewise.
        """
        values, names = list(self.tabled.values()), [self.locals[i] for i in self.tabled]
        packed = f"({self._elements.listing(names)}, )"
        if names == self.arguments_at:  # locals are of `args`
            packed = names[0].partition("[")[0] if self._elements.knows(names[0]) else "args"
        table = self.source.const(make_table(values, others, sizes, strides), "read_leaves")
        arguments = ", ".join(filter(None, (packed, self._elements.listing(given))))
        self.source.line(f"{self._leaves_read} = {table}({arguments})")
        self.source.refuse_if(f"{self._leaves_read} is None")
        return "\n".join(lines_of(names, values))

    def _place(self, place: Place) -> str:
        """Returns the expression of what stands at a place."""
        match place:
            case ArgumentPlace():
                return self.arguments_at[place.leaf]
            case HeldPlace():
                if place.number not in self.objects.tensors:
                    self._read_attributes()
                return self.objects.tensors[place.number]
            case ModulePlace():
                table = self.source.const(getattr(place.module, place.table), place.table)
                return f"{table}.get({place.name!r})"

    def _read_attributes(self) -> None:
        """Emits the reads of what is on tensors that are read elsewhere, such as a weight that is kept."""
        for number, holder in self.arguments.extras.items():
            if not self.objects.has_read(holder):
                name = self.locals.get(self.arguments.value_at[number])
                self.objects.attributes(name or self._place(self.arguments.places[number]), holder)

    def _base(self, view: str, base: int) -> None:
        """Emits the reads of what a view is a view of."""
        if base in self.locals:
            self.source.refuse_if(f"{view}.{_torch.autograd.BASE} is not {self.locals[base]}")
        else:  # only views of it are passed
            self.locals[base] = self.source.fresh(self.arguments.path_of(base))
            self.source.line(f"{self.locals[base]} = {view}.{_torch.autograd.BASE}")


class _Reader:
    """Emits the reads of one value, down to its leaves.

    Args:
        guards: Of the function that is written.
        leaves: Gets the expressions of leaves.
    """

    def __init__(self, guards: TensorGuards, leaves: list[str]) -> None:
        self.guards = guards
        self.source = guards.source
        self.leaves = leaves

    def read(self, name: str, value: Any, meta: InnerMeta, fact: kinds.Inner | str | None) -> None:
        """Emits the checks of classes and contexts down to the leaves, and the reads of those.

        Args:
            name: The local that holds the tensor.
            value: The tensor of the call that was traced.
            meta: How it is made of leaves.
            fact: What is compared; None where nothing is.
        """
        match meta:
            case SubclassCreationMeta():
                assert fact is None or isinstance(fact, kinds.Metadata)
                self.wrapper(name, value, meta, fact)
            case ContainerMeta():
                self.container(name, value, meta, fact)
            case AbsentMeta():
                self.source.refuse_if(f"{name} is not None")
            case PlainTensorMeta():
                self.leaves.append(name)
                if isinstance(fact, kinds.Metadata):
                    self.sizes(name, fact)
                    self.guards.checked.append((name, value, fact))
                elif isinstance(fact, str) and fact.isdigit():  # nothing else differs in tensors that stand for numbers
                    self.source.refuse_if(f"{name}.size(0) != {fact}")
                elif isinstance(fact, str) and fact != kinds.FLOAT:
                    self.guards.sizes.read(self.source, name, "size", 0, fact)
            case OpaqueMeta():
                if isinstance(fact, kinds.Constant):
                    self.source.refuse_if(f"not {self.same(name, fact.value, 'opaque')}")
                self.leaves.append(name)

    def wrapper(self, name: str, value: torch.Tensor, meta: SubclassCreationMeta, fact: kinds.Metadata | None) -> None:
        if fact is not None:
            if name not in self.guards.of_known_class:
                self.source.refuse_if(f"type({name}) is not {self.source.const(meta.cls, meta.cls.__name__)}")
            self.context(name, value, meta, fact)
            self.guards.checked.append((name, value, fact))
        if _torch.collectives.waits_when_read(
            meta.cls
        ):  # what is compiled may begin with a write, and kernels do not wait
            self.source.line(f"{name}.{_torch.collectives.WAIT}()")
        parts = dict(fact.inner) if fact is not None else {}
        for attribute, inner in meta.attrs.items():
            local = self.source.fresh(f"{name}_{attribute}")
            self.source.line(f"{local} = {name}.{attribute}")
            self.read(local, getattr(value, attribute), inner, parts.get(attribute))
        self.outer(name, "size", meta.symbolic_sizes, fact)
        self.outer(name, "stride", meta.symbolic_strides, fact)

    def outer(self, name: str, kind: Dims, dims: Iterable[int], fact: kinds.Metadata | None) -> None:
        """Emits the reads of the symbolic sizes or strides of a wrapper, which are slots of their own."""
        for dim in dims:
            text = "" if fact is None else str(getattr(fact, kind)[dim])
            self.leaves.append(self.guards.sizes.read(self.source, name, kind, dim, text))

    def container(self, name: str, value: Any, meta: ContainerMeta, fact: kinds.Inner | str | None) -> None:
        parts = dict(fact.items) if isinstance(fact, kinds.Parts) else {}
        kind = self.source.const(meta.cls, meta.cls.__name__)
        self.source.refuse_if(f"type({name}) is not {kind} or len({name}) != {len(meta.items)}")
        for key, inner in meta.items.items():
            local = self.source.fresh(f"{name}_{key}")
            k = self.source.const(key, "key")
            self.source.line(f"{local} = {name}.get({k})" if meta.cls is dict else f"{local} = {name}[{k}]")
            self.read(local, value[key], inner, parts.get(key))

    def sizes(self, name: str, fact: kinds.Metadata) -> None:
        """Emits the reads of those of the sizes and strides of a leaf that are symbols. They are no leaves."""
        of_kinds: Iterable[tuple[Dims, Sequence[kinds.Number]]] = (("size", fact.size), ("stride", fact.stride))
        for kind, numbers in of_kinds:
            for dim, number in enumerate(numbers):
                if type(number) is str and number != kinds.RAGGED:
                    self.guards.sizes.read(self.source, name, kind, dim, number)

    def same(self, text: str, constant: object, hint: str) -> str:
        """Returns the comparison of an expression with a constant."""
        return f"{self.source.const(same_constant, 'same_constant')}({text}, {self.source.const(constant, hint)})"

    def context(self, name: str, value: torch.Tensor, meta: SubclassCreationMeta, fact: kinds.Metadata) -> None:
        """Emits the comparison of the context; of attributes, most are the same object."""
        if meta.repeated:
            layout = self.source.const(same_layout_of_any_size, "same_layout_of_any_size")
            copied = dataclasses.replace(meta, context=kept(meta.context))
            self.source.refuse_if(f"not {layout}({name}, {self.source.const(copied, 'meta')})")
            return
        constants = constants_of(value, fact)
        if constants is None:
            layout = self.source.const(same_layout, "same_layout")
            names = self.source.const(tuple(meta.attrs), "names")
            self.source.refuse_if(f"not {layout}({name}, {names}, {self.source.const(kept(meta.context), 'context')})")
            return
        for attribute, constant in constants.items():
            other = f"{name}.{attribute} is not {self.source.const(constant, attribute)}"
            if constant is not None:
                other += f" and not {self.same(f'{name}.{attribute}', constant, attribute)}"
            self.source.refuse_if(other)
        for attribute in absent_fields(fact):
            self.source.refuse_if(f"{name}.{attribute} is not None")


def refuse_other_specs(guards: TensorGuards, elements: Elements) -> str:
    """Emits one comparison of class, dtype, device, size, stride, requires_grad and dispatch keys of every tensor.

    Returns:
        What is compared out of sight, in words; "" if nothing is.
    """
    source = guards.source
    first: dict[int, int] = {}
    given: list[str] = []
    others: list[torch.Tensor] = []
    sizes: list[list[int | None]] = []
    strides: list[list[int | None]] = []
    for name, value, fact in guards.checked:  # the check refuses to be given a tensor twice
        at = first.setdefault(id(value), len(given))
        if at < len(given):
            source.refuse_if(f"{name} is not {given[at]}")
            sizes[at] = _known(fact.size, sizes[at])  # a symbol in one of two places may be known in the other
            strides[at] = _known(fact.stride, strides[at])
            continue
        given.append(name)
        others.append(value)
        sizes.append(_known(fact.size))
        strides.append(_known(fact.stride))
    if guards.tabled:
        return guards.refuse_by_table(given, others, sizes, strides)
    if given:
        check = _torch.dynamo.tensor_check(others, sizes, strides)
        source.refuse_if(f"not {source.const(check, 'same_specs')}({elements.listing(given)})")
    return ""


def _known(numbers: Sequence[kinds.Number], also: Sequence[int | None] | None = None) -> list[int | None]:
    """Returns sizes or strides with None for symbolic ones, and for nested ints, which are no numbers.

    Args:
        numbers: Them.
        also: What else is known of these; None in place of what is not.
    """
    found = [n if isinstance(n, int) else None for n in numbers]
    return found if also is None else [b if a is None else a for a, b in zip(found, also, strict=True)]
