"""The metadata of a tensor: all that a signature depends on of it, but for its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.facts.constants import constant
from subclass_aot.engine.facts.fact import RAGGED, Code, Constant, Context, Inner, Metadata, Number, Parts
from subclass_aot.kit.declaration import attributes_of
from subclass_aot.kit.flatten import ContainerMeta, SubclassCreationMeta


def metadata_of(tensor: torch.Tensor, path: str, places: Mapping[str, str]) -> Metadata:
    """Describes a tensor, inner tensors and context included.

    Args:
        tensor: The tensor.
        path: Where it stands.
        places: Sizes and strides that are symbols, such as `args[0].size(1)`, and what is said instead.
    """
    strides = tensor.stride() if tensor.layout in (torch.strided, torch.jagged) else ()
    is_wrapper = _torch.wrappers.is_traceable_wrapper_subclass(tensor)
    inner: tuple[tuple[str, Inner], ...] = ()
    context: Context | tuple[tuple[str, Constant], ...] = ()
    if is_wrapper:
        names, given = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        step = SubclassCreationMeta.step
        inner = tuple([(name, _inner(getattr(tensor, name), path + step(name), places)) for name in names])
        context = _context(type(tensor), tuple(names), SubclassCreationMeta.masked(given, path, places))
    return Metadata(
        Code.of(type(tensor)), _numbers(tensor.shape, f"{path}.size", places),
        _numbers(strides, f"{path}.stride", places), tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad,
        str(_torch.wrappers.dispatch_keys(tensor)), tensor.is_inference(), inner, context,
    )  # fmt: skip


def _numbers(numbers: Sequence[Any], place: str, places: Mapping[str, str]) -> tuple[Number, ...]:
    """Returns sizes or strides. One that is no number, as that of a ragged dimension, belongs to its tensor alone."""
    found = [n if type(n) is int else RAGGED for n in numbers]
    if not places:
        return tuple(found)
    return tuple([places.get(f"{place}({dim})", n) for dim, n in enumerate(found)])


def _inner(value: object, path: str, places: Mapping[str, str]) -> Inner:
    if isinstance(value, torch.Tensor):
        return metadata_of(value, path, places)
    if type(value) in (list, tuple, dict):
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)  # type: ignore[arg-type]
        step = ContainerMeta.step
        return Parts(type(value), tuple([(key, _inner(part, path + step(key), places)) for key, part in items]))
    return constant(value)


def _context(cls: type, names: tuple[str, ...], context: Any) -> Context | tuple[tuple[str, Constant], ...]:
    """Describes the context of a wrapper. Of a declared class the attributes give it, as they do for a guard."""
    attributes = attributes_of(cls)
    if attributes is None:
        return Context(cls, constant(context))
    return tuple([(name, constant(value)) for name, value in attributes(names, context).items()])
