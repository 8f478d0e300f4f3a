"""When does a compiled entry fit a call: one generated function that checks, and reads every leaf on the way."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.codegen import Source
from subclass_aot.flatten import AbsentMeta, ContainerMeta, PlainTensorMeta, SubclassCreationMeta
from subclass_aot.trace import (
    AUTOCAST_DEVICES,
    ArgumentPlace,
    Arguments,
    JointSignature,
    ModulePlace,
    has_storage,
    storage_groups,
)

Guard = Callable[[list[Any], Any], "tuple[list[Any], list[Any]] | None"]
"""`guard(argument_leaves, treespec)` gives the tensors of a call and their flat slots, or None if it does not fit."""


def global_state() -> tuple[Any, ...]:
    """The modes that change what a program does: grad, inference, autocast, default dtype, determinism."""
    state: list[Any] = [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    ]
    for device in AUTOCAST_DEVICES:
        on = torch.is_autocast_enabled(device)
        state.append(torch.get_autocast_dtype(device) if on else None)
    return tuple(state)


def make_guard(arguments: Arguments, signature: JointSignature, leaves: Sequence[Any], state: tuple[Any, ...]) -> Guard:
    """Generates the guard of one entry.

    Args:
        arguments: The call that the entry was made for.
        signature: Its signature.
        leaves: The flat slots of that call.
        state: `global_state()` of that call.
    """
    return _GuardWriter(arguments, signature, leaves, state).write()


class _GuardWriter:
    def __init__(
        self, arguments: Arguments, signature: JointSignature, leaves: Sequence[Any], state: tuple[Any, ...]
    ) -> None:
        self.arguments = arguments
        self.signature = signature
        self.leaves = leaves
        self.state = state
        doc = "The tensors of a call and their leaves, or None if it does not fit."
        self.source = Source("guard", "leaves, treespec", doc)
        self.outer: list[str] = []
        self.inner: list[str] = []
        self.checked: list[tuple[str, Any]] = []

    def write(self) -> Guard:
        const = self.source.const
        self.refuse_if(f"treespec != {const(self.arguments.treespec, 'treespec')}")
        self.refuse_if(f"{const(global_state, 'global_state')}() != {const(self.state, 'state')}")
        self.constants()
        self.modules()
        self.tensors()
        for name, value, meta in zip(self.outer, self.arguments.values, self._metas(), strict=True):
            self.wrapper(name, value, meta)
        self.specs()
        self.autograd_leaves()
        if self.signature.writes:
            self.storages()
        self.source.line(f"return [{', '.join(self.outer)}], [{', '.join(self.inner)}]")
        return self.source.build()

    def _metas(self) -> list[Any]:
        return [i.meta for i in self.signature.inputs]

    def refuse_if(self, condition: str) -> None:
        self.source.line(f"if {condition}: return None")

    def constants(self) -> None:
        """Python values must be equal and of one type; what has no useful equality must be the same object.

        A value without a hash may change, so a copy of it is kept.
        """
        for i, leaf in enumerate(self.arguments.leaves):
            if isinstance(leaf, torch.Tensor):
                continue
            kept = copy.deepcopy(leaf) if type(leaf).__hash__ is None else leaf
            name = self.source.const(kept, f"constant_{i}")
            if leaf is None or isinstance(leaf, (bool, torch.nn.Module, type)) or callable(leaf):
                self.refuse_if(f"leaves[{i}] is not {name}")
            else:
                same = self.source.const(_same_constant, "same_constant")
                self.refuse_if(f"leaves[{i}] is not {name} and not {same}(leaves[{i}], {name})")

    def modules(self) -> None:
        """The tree of modules, their mode, and the names of what they hold."""
        for path, module in self.arguments.modules:
            m = self.source.const(module, path.replace(".", "_"))
            conditions = [f"{m}.training is not {module.training}"]
            for table in ("_parameters", "_buffers"):
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
            self.refuse_if(" or ".join(conditions))
        tables = [t for _, m in self.arguments.modules for t in (m._parameters, m._buffers, m._modules)]
        if not all(tables):
            empty = self.source.const(tuple(t for t in tables if not t), "empty_tables")
            self.refuse_if(f"any({empty})")
        self.hooks()

    def hooks(self) -> None:
        """Hooks run while tracing; each has a number that no other hook of the process has."""
        tables = [getattr(module, name) for _, module in self.arguments.modules for name in _HOOKS]
        empty = tuple(t for t in tables if not t)
        if empty:
            self.refuse_if(f"any({self.source.const(empty, 'hooks')})")
        for table in tables:
            if table:
                self.refuse_if(f"tuple({self.source.const(table, 'hooks')}) != {tuple(table)}")

    def tensors(self) -> None:
        """Reads each place; places that held one tensor must do so again."""
        by_value: dict[int, str] = {}
        for place, position in zip(self.arguments.places, self.arguments.value_at, strict=True):
            if isinstance(place, ArgumentPlace):
                read = f"leaves[{place.leaf}]"
            else:
                assert isinstance(place, ModulePlace)
                table = getattr(place.module, place.table)
                read = f"{self.source.const(table, place.table)}.get({place.name!r})"
            if position in by_value:
                self.refuse_if(f"{read} is not {by_value[position]}")
            else:
                name = by_value[position] = self.source.fresh(place.path)
                self.source.line(f"{name} = {read}")
        self.outer = [by_value[i] for i in range(len(self.arguments.values))]

    def wrapper(self, name: str, value: Any, meta: Any) -> None:
        """Checks classes and contexts down to the leaves, and reads those."""
        if isinstance(meta, SubclassCreationMeta):
            cls = self.source.const(meta.cls, meta.cls.__name__)
            self.refuse_if(f"type({name}) is not {cls}")
            self.context(name, value, meta)
            self.checked.append((name, value))
            for attribute, inner in meta.attrs.items():
                part = getattr(value, attribute)
                local = self.source.fresh(f"{name}_{attribute}")
                self.source.line(f"{local} = {name}.{attribute}")
                self.wrapper(local, part, inner)
        elif isinstance(meta, ContainerMeta):
            kind = self.source.const(meta.cls, meta.cls.__name__)
            self.refuse_if(f"type({name}) is not {kind} or len({name}) != {len(meta.items)}")
            for key, inner in meta.items.items():
                local = self.source.fresh(f"{name}_{key}")
                k = self.source.const(key, "key")
                self.source.line(f"{local} = {name}.get({k})" if meta.cls is dict else f"{local} = {name}[{k}]")
                self.wrapper(local, value[key], inner)
        elif isinstance(meta, AbsentMeta):
            self.refuse_if(f"{name} is not None")
        elif isinstance(meta, PlainTensorMeta):
            self.inner.append(name)
            self.checked.append((name, value))
        else:
            same = self.source.const(_same_constant, "same_constant")
            self.refuse_if(f"not {same}({name}, {self.source.const(value, 'opaque')})")
            self.inner.append(name)

    def context(self, name: str, value: Any, meta: SubclassCreationMeta) -> None:
        """What `__tensor_flatten__` says beside the tensors."""
        attributes = getattr(meta.cls, "__wrapper_attributes__", None)
        if attributes is not None:
            found = attributes(tuple(meta.attrs), meta.context)
            for attribute, constant in found.items():
                c = self.source.const(constant, attribute)
                same = self.source.const(_same_constant, "same_constant")
                other = f"{name}.{attribute} is not {c}"
                self.refuse_if(other if constant is None else f"{other} and not {same}({name}.{attribute}, {c})")
            for field in meta.cls._fields.values():  # type: ignore[attr-defined]
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
            check = _torch.tensor_check([value for _, value in once])
            self.refuse_if(f"not {self.source.const(check, 'same_specs')}({', '.join(n for n, _ in once)})")

    def autograd_leaves(self) -> None:
        """In-place writes mean another thing on a leaf than on a non-leaf."""
        for name, given in zip(self.outer, self.signature.inputs, strict=True):
            if given.requires_grad:
                self.refuse_if(f"{name}.is_leaf is not {given.is_leaf}")

    def storages(self) -> None:
        """A graph that writes was made for one pattern of sharing."""
        slots = [i for i, leaf in enumerate(self.leaves) if has_storage(leaf)]
        groups = storage_groups(self.leaves)
        together = {i for group in groups for i in group}
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


def _same_constant(a: Any, b: Any) -> bool:
    """Equality to the last bit of Python values: `1`, `1.0` and `True` differ, `0.0` and `-0.0` too, NaN equals itself.

    What cannot be compared is compared by identity.
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same_constant, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b
    try:
        return bool(a == b)
    except Exception:
        return False


def _same_layout(tensor: Any, names: tuple[str, ...], context: Any) -> bool:
    found_names, found_context = tensor.__tensor_flatten__()
    if tuple(found_names) != names:
        return False
    guard = getattr(type(tensor), "__metadata_guard__", None)
    return bool(guard(context, found_context)) if guard is not None else _same_constant(found_context, context)


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
