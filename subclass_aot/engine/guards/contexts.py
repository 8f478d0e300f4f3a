"""Compares a wrapper's context, by attributes where `__tensor_flatten__` only reads attributes, else by calling it."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot.base.bytecode import attributes_read
from subclass_aot.engine.facts import fact as kinds
from subclass_aot.engine.objects import same_constant
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.flatten import SubclassCreationMeta


def constants_of(wrapper: torch.Tensor, metadata: kinds.Metadata) -> Mapping[str, object] | None:
    """Finds the attributes that give the context of a wrapper; None where only its class can.

    A class that is declared has its context in attributes. The `__tensor_flatten__` of another may be so simple that it
    puts attributes together and does nothing else; to compare these is faster than to call it.

    Args:
        wrapper: The wrapper.
        metadata: Its metadata.
    """
    if isinstance(metadata.context, tuple):
        return {name: constant.value for name, constant in metadata.context}
    cls = metadata.cls.thing
    flatten = getattr(cls, "__tensor_flatten__", None)
    if not isinstance(flatten, types.FunctionType) or hasattr(cls, "__metadata_guard__"):
        return None
    read = attributes_read(flatten.__code__)
    if read is None or cls.__getattribute__ is not torch.Tensor.__getattribute__:
        return None
    held = vars(wrapper)
    if not all(name in held and not hasattr(cls, name) and is_constant(held[name]) for name in read):
        return None
    return {name: held[name] for name in read}


def absent_fields(metadata: kinds.Metadata) -> tuple[str, ...]:
    """Finds the optional fields of a declared class that hold nothing."""
    declaration, present = Declaration.of(metadata.cls.thing), dict(metadata.inner)
    fields = declaration.fields.values() if declaration is not None else ()
    return tuple(field.name for field in fields if field.kind == "optional" and field.name not in present)


def same_layout_of_any_size(tensor: Any, meta: SubclassCreationMeta) -> bool:
    """Compares layouts where the context repeats sizes, which the tensor itself has. See Note [Sizes in contexts]."""
    return same_layout(tensor, tuple(meta.attrs), meta.context_of(tensor.size(), tensor.stride()))


def same_layout(tensor: Any, names: tuple[str, ...], context: object) -> bool:
    """Returns whether a wrapper of another library has these inner tensors and this context."""
    found_names, found_context = tensor.__tensor_flatten__()
    if tuple(found_names) != names:
        return False
    guard = getattr(type(tensor), "__metadata_guard__", None)
    return bool(guard(context, found_context)) if guard is not None else same_constant(found_context, context)


def is_constant(value: object) -> bool:
    """Returns whether a value can only be replaced and not changed."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_constant, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        frozen = type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
        return frozen and all(is_constant(getattr(value, f.name)) for f in dataclasses.fields(value))
    return isinstance(value, _CONSTANTS)


_CONSTANTS = (
    int, float, complex, str, bytes, types.NoneType, enum.Enum, type, types.FunctionType,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
