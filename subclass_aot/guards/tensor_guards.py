"""The part of a guard that reads the tensors of a call, down to their leaves, and compares what they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot import _torch
from subclass_aot.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, Place
from subclass_aot.codegen import GuardedSource
from subclass_aot.declaration import Declaration, attributes_of
from subclass_aot.flatten import (
    AbsentMeta,
    ContainerMeta,
    FlattenPlan,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    ValueMeta,
)
from subclass_aot.guards.lines import Elements
from subclass_aot.guards.size_guards import Kind, SizeGuards
from subclass_aot.meta import Spec
from subclass_aot.objects import ObjectGuards, same_constant
from subclass_aot.signature import JointSignature
from subclass_aot.symbols import is_symbolic


class Pattern(NamedTuple):
    """What a tensor of a call is compared with.

    Attributes:
        value: The tensor of the call that was traced.
        meta: How it is made of leaves.
        specs: In flat order the spec of each leaf, opaque inner values and symbolic sizes.
    """

    value: torch.Tensor
    meta: ValueMeta
    specs: Sequence[Any]


def patterns_of(arguments: Arguments, signature: JointSignature) -> list[Pattern]:
    """Returns what the values of a call are compared with, and after these its views."""
    given = zip(arguments.values, signature.inputs, strict=True)
    found = [Pattern(value, described.meta, described.specs) for value, described in given]
    plan, leaves = FlattenPlan.read(arguments.views, where="views")
    for i, (view, meta) in enumerate(zip(arguments.views, plan.metas, strict=True)):
        of_view = [leaves[slot] for slot in plan.index_map.flat_of(i)]
        specs = [Spec.of(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in of_view]
        found.append(Pattern(view, meta, specs))
    return found


class TensorGuards:
    """Reads tensors in one generated function.

    Args:
        source: The function.
        arguments: The call that was traced.
        patterns: What its values and views are compared with.
        objects: Finds those that objects hold.

    Attributes:
        locals: The expression of each value and view that was read, by position.
        leaves_of: The expressions of its leaves, and of its symbolic sizes.
        checked: Expressions of tensors that are still to be compared by how they look, each with that of the call that
            was traced. See `refuse_other_specs`.
        sizes: Where symbolic sizes were read.
        arguments_at: The expression of each flat argument.
        of_known_class: Those whose classes were compared by then.
    """

    def __init__(
        self, source: GuardedSource, arguments: Arguments, patterns: list[Pattern], objects: ObjectGuards
    ) -> None:
        self.source = source
        self.arguments = arguments
        self.patterns = patterns
        self.objects = objects
        self.locals: dict[int, str] = {}
        self.leaves_of: dict[int, list[str]] = {}
        self.checked: list[tuple[str, torch.Tensor]] = []
        self.sizes = SizeGuards()
        self.arguments_at = [f"leaves[{i}]" for i in range(len(arguments.leaves))]
        self.of_known_class: frozenset[str] = frozenset()

    def all_values(self) -> list[str]:
        """Returns the expression of each value, then of each view."""
        return [self.locals[i] for i in range(len(self.patterns))]

    def all_leaves(self) -> list[str]:
        """Returns the expressions of their leaves."""
        return [leaf for i in range(len(self.patterns)) for leaf in self.leaves_of[i]]

    def read(self, positions: set[int]) -> None:
        """Reads the values at `positions`, down to the leaves; places that held one tensor must do so again."""
        extras = self.arguments.extras
        for number, (place, position) in enumerate(self.arguments.placed):
            if position not in positions:
                continue
            text = self._place(place)
            if position in self.locals:
                self.source.refuse_if(f"{text} is not {self.locals[position]}")
            elif text.isidentifier():
                self.locals[position] = text
            else:
                name = self.locals[position] = self.source.fresh(place.path)
                self.source.line(f"{name} = {text}")
            if number in extras:
                self.objects.attributes(self.locals[position], extras[number])
        for i, base in enumerate(self.arguments.view_of, len(self.arguments.values)):
            if i in positions:
                self._base(self.locals[i], base)
        for i in sorted(positions):
            value, meta, specs = self.patterns[i]
            leaves = self.leaves_of[i] = []
            _Reader(self, leaves, iter(specs)).read(self.locals[i], value, meta)

    def _place(self, place: Place) -> str:
        """Returns the expression of what stands at a place."""
        match place:
            case ArgumentPlace():
                return self.arguments_at[place.leaf]
            case HeldPlace():
                return self.objects.tensors[place.number]
            case ModulePlace():
                table = self.source.const(getattr(place.module, place.table), place.table)
                return f"{table}.get({place.name!r})"

    def _base(self, view: str, base: int) -> None:
        """Reads what a view is a view of."""
        if base in self.locals:
            self.source.refuse_if(f"{view}.{_torch.BASE} is not {self.locals[base]}")
        else:  # only views of it are passed
            self.locals[base] = self.source.fresh(self.arguments.path_of(base))
            self.source.line(f"{self.locals[base]} = {view}.{_torch.BASE}")


class _Reader:
    """Reads one value down to its leaves.

    Args:
        guards: Of the function that is written.
        leaves: Gets the expressions of leaves.
        specs: What is left of the specs of the value.
    """

    def __init__(self, guards: TensorGuards, leaves: list[str], specs: Iterator[Any]) -> None:
        self.guards = guards
        self.source = guards.source
        self.leaves = leaves
        self.specs = specs

    def read(self, name: str, value: Any, meta: InnerMeta) -> None:
        """Checks classes and contexts down to the leaves, and reads those.

        Args:
            name: The local that holds the tensor.
            value: The tensor of the call that was traced.
            meta: How it is made of leaves.
        """
        match meta:
            case SubclassCreationMeta():
                self.wrapper(name, value, meta)
            case ContainerMeta():
                self.container(name, value, meta)
            case AbsentMeta():
                self.source.refuse_if(f"{name} is not None")
            case PlainTensorMeta():
                spec = next(self.specs)
                self.sizes(name, "size", spec.size)
                self.sizes(name, "stride", spec.stride)
                self.leaves.append(name)
                self.guards.checked.append((name, value))
            case OpaqueMeta():
                self.source.refuse_if(f"not {self.same(name, next(self.specs), 'opaque')}")
                self.leaves.append(name)

    def wrapper(self, name: str, value: torch.Tensor, meta: SubclassCreationMeta) -> None:
        if name not in self.guards.of_known_class:
            self.source.refuse_if(f"type({name}) is not {self.source.const(meta.cls, meta.cls.__name__)}")
        self.context(name, meta)
        self.guards.checked.append((name, value))
        if meta.storage_offset:  # results that are made like it have it, too
            self.source.refuse_if(f"{name}.storage_offset() != {meta.storage_offset}")
        for attribute, inner in meta.attrs.items():
            local = self.source.fresh(f"{name}_{attribute}")
            self.source.line(f"{local} = {name}.{attribute}")
            self.read(local, getattr(value, attribute), inner)
        self.outer(name, "size", meta.symbolic_sizes)
        self.outer(name, "stride", meta.symbolic_strides)

    def outer(self, name: str, kind: Kind, dims: Iterable[int]) -> None:
        """Reads the symbolic sizes or strides of a wrapper, which are slots of their own."""
        for dim in dims:
            self.leaves.append(self.guards.sizes.read(self.source, name, kind, dim, next(self.specs)))

    def container(self, name: str, value: Any, meta: ContainerMeta) -> None:
        kind = self.source.const(meta.cls, meta.cls.__name__)
        self.source.refuse_if(f"type({name}) is not {kind} or len({name}) != {len(meta.items)}")
        for key, inner in meta.items.items():
            local = self.source.fresh(f"{name}_{key}")
            k = self.source.const(key, "key")
            self.source.line(f"{local} = {name}.get({k})" if meta.cls is dict else f"{local} = {name}[{k}]")
            self.read(local, value[key], inner)

    def sizes(self, name: str, kind: Kind, numbers: Iterable[Any]) -> None:
        """Reads those of the sizes or strides of a leaf that are symbols. They are no leaves."""
        for dim, number in enumerate(numbers):
            if is_symbolic(number):
                self.guards.sizes.read(self.source, name, kind, dim, number)

    def same(self, text: str, constant: object, hint: str) -> str:
        """Returns the comparison of an expression with a constant."""
        return f"{self.source.const(same_constant, 'same_constant')}({text}, {self.source.const(constant, hint)})"

    def context(self, name: str, meta: SubclassCreationMeta) -> None:
        """Compares what `__tensor_flatten__` says beside the tensors.

        A class of this library has its context in attributes, which are compared one by one: most are the same object.
        """
        attributes = attributes_of(meta.cls)
        if attributes is None:
            layout = self.source.const(_same_layout, "same_layout")
            names = self.source.const(tuple(meta.attrs), "names")
            self.source.refuse_if(f"not {layout}({name}, {names}, {self.source.const(meta.context, 'context')})")
            return
        for attribute, constant in attributes(tuple(meta.attrs), meta.context).items():
            other = f"{name}.{attribute} is not {self.source.const(constant, attribute)}"
            if constant is not None:
                other += f" and not {self.same(f'{name}.{attribute}', constant, attribute)}"
            self.source.refuse_if(other)
        declaration = Declaration.of(meta.cls)
        for field in declaration.fields.values() if declaration is not None else ():
            if field.kind == "optional" and field.name not in meta.attrs:
                self.source.refuse_if(f"{name}.{field.name} is not None")


def refuse_other_specs(guards: TensorGuards, elements: Elements) -> None:
    """Compares class, dtype, device, size, stride, requires_grad and dispatch keys of every tensor, in one call."""
    source, sizes = guards.source, guards.sizes
    first: dict[int, str] = {}
    once: list[tuple[str, torch.Tensor]] = []
    for name, value in guards.checked:  # the check refuses to be given a tensor twice
        if id(value) in first:
            source.refuse_if(f"{name} is not {first[id(value)]}")
        else:
            first[id(value)] = name
            once.append((name, value))
    if once:
        check = _torch.tensor_check(
            [value for _, value in once],
            [sizes.known(name, "size", list(value.size())) for name, value in once],
            [sizes.known(name, "stride", list(value.stride())) for name, value in once],
        )
        names = elements.listing([name for name, _ in once])
        source.refuse_if(f"not {source.const(check, 'same_specs')}({names})")


def _same_layout(tensor: Any, names: tuple[str, ...], context: object) -> bool:
    """Tells whether a wrapper of another library has these inner tensors and this context."""
    found_names, found_context = tensor.__tensor_flatten__()
    if tuple(found_names) != names:
        return False
    guard = getattr(type(tensor), "__metadata_guard__", None)
    return bool(guard(context, found_context)) if guard is not None else same_constant(found_context, context)
