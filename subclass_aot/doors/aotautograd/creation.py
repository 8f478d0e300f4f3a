"""From values to metas."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.doors.aotautograd.arguments import AnyMeta, refuse_no_list
from subclass_aot.kit import flatten
from subclass_aot.kit.flatten import PlainTensorMeta, SubclassCreationMeta, ValueMeta


@dataclass(frozen=True, slots=True)
class _PlainTensorMeta(PlainTensorMeta):
    memory_format: Any = None


@dataclass(frozen=True, slots=True)
class _SubclassCreationMeta(SubclassCreationMeta):
    memory_format: Any = None


def create_subclass_meta(
    curr_args: Sequence[Any],
    *,
    count_symints: bool = True,
    with_memory_format: bool = False,
    where: str = "args",
    names: Sequence[str] = (),
) -> list[ValueMeta]:
    """Describes each value: how many flat slots it takes, where they start, and how to rebuild it from them.

    Args:
        curr_args: Dense tensors, wrapper tensors, and anything else; what is no wrapper takes one slot.
        count_symints: Whether symbolic sizes and strides of wrappers take slots of their own (not for tangents).
        with_memory_format: Whether metas say in `memory_format` which strides a tangent like the value is expected to
            have, in AOTAutograd's words.
        where: What errors call the list.
        names: What errors call each value, where that is not its place in the list.

    Returns:
        One meta for each value.

    Raises:
        InnerTensorError: An inner tensor requires grad, is missing, or is no tensor.
        PlanError: There is no list; or a symbolic size has no slot, and no inner tensor to take it from.

    >>> create_subclass_meta([torch.ones(2), 7])
    [PlainTensorMeta(unwrapped_idx=0, cls=<class 'torch.Tensor'>, dtype=torch.float32), \
PlainTensorMeta(unwrapped_idx=1, cls=<class 'int'>, dtype=None)]
    """
    refuse_no_list(curr_args, "curr_args", "create_subclass_meta")
    metas = flatten.create_subclass_meta(curr_args, count_symints=count_symints, where=where, names=names)
    if not with_memory_format:
        return metas
    return [_with_memory_format(meta, value) for meta, value in zip(metas, curr_args, strict=True)]


def _with_memory_format(meta: AnyMeta, value: object) -> Any:
    """Gives a meta and those of inner tensors a memory format."""
    if not isinstance(value, torch.Tensor) or not isinstance(meta, PlainTensorMeta | SubclassCreationMeta):
        return meta
    fields = {field.name: getattr(meta, field.name) for field in dataclasses.fields(meta)}
    fields["memory_format"] = _torch.aotautograd.memory_format_meta(value)
    if isinstance(meta, PlainTensorMeta):
        return _PlainTensorMeta(**fields)
    fields["attrs"] = {name: _with_memory_format(part, getattr(value, name)) for name, part in meta.attrs.items()}
    return _SubclassCreationMeta(**fields)
