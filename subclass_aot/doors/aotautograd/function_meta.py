"""Facts about the inputs and outputs of a function: in terms of wrappers, and in terms of leaves."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import optree

from subclass_aot.base import _torch
from subclass_aot.base._torch.wrappers import is_traceable_wrapper_subclass
from subclass_aot.doors.aotautograd.arguments import AnyMeta, is_of_one_level, is_of_wrapper
from subclass_aot.doors.aotautograd.unwrap import unwrap_tensor_subclasses
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import IndexMap, PlainTensorMeta, SubclassCreationMeta, ValueMeta

_NO_POSITION = "mutated_inp_runtime_indices: {position!r} is the position of no input; there are {count}."

_COUNTS = "{what}: there are {count} for {of}. Make `{name}` of the same list of values as `subclass_inp_meta`."

_OTHER_INFO = """inner_metadata.input_info[{flat}] is {inner!r},
but `fw_metadata` says of args[{outer}], which is that leaf: {info!r}.
Make both of the same call."""


@dataclass(frozen=True)
class FunctionMeta:
    """The facts about the inputs and outputs of a function, in terms of wrappers or of leaves.

    The names are those of AOTAutograd's `ViewAndMutationMeta`, and functions here that take one take the other too.

    Args:
        subclass_inp_meta: One meta for each input.
        subclass_fw_graph_out_meta: One meta for each output of the forward graph that is not a saved activation.
        subclass_tangent_meta: One meta for each tangent, made with `count_symints=False`.
        input_info: Anything a compiler notes about each input.
        output_info: Anything a compiler notes about each user output. They come after mutated inputs.
        mutated_inp_runtime_indices: The positions of mutated inputs.
        num_intermediate_bases: How many outputs of the forward graph come after the user outputs.
    """

    subclass_inp_meta: Sequence[ValueMeta]
    subclass_fw_graph_out_meta: Sequence[ValueMeta] = ()
    subclass_tangent_meta: Sequence[ValueMeta] = ()
    input_info: Sequence[Any] = ()
    output_info: Sequence[Any] = ()
    mutated_inp_runtime_indices: Sequence[int] = ()
    num_intermediate_bases: int = 0


def requires_subclass_dispatch(args: object, fw_metadata: AnyMeta) -> bool:
    """Returns whether anything must be unwrapped or wrapped around a call: some argument or output is a wrapper.

    Args:
        args: Any structure of arguments.
        fw_metadata: A `FunctionMeta`, or AOTAutograd's `ViewAndMutationMeta`.
    """
    tree: Any = args
    leaves: list[Any] = optree.tree_leaves(tree, none_is_leaf=True, namespace=_torch.modules.PYTREE_NAMESPACE)
    outputs = fw_metadata.subclass_fw_graph_out_meta
    return any(map(is_traceable_wrapper_subclass, leaves)) or any(map(is_of_wrapper, outputs))


def create_metadata_for_subclass(meta: AnyMeta) -> Any:
    """Describes the same function in terms of leaves, for what works below wrappers: a partitioner, a dense compiler.

    What was noted about a wrapper is noted about each of its slots; which leaves are really written is known better by
    `IndexMap.written`.

    Args:
        meta: A `FunctionMeta`, or AOTAutograd's `ViewAndMutationMeta`.

    Returns:
        Another one of the same class.

    Raises:
        PlanError: It says something of more or fewer values than there are metas, or of a position without an input.
    """
    bases = meta.num_intermediate_bases or 0
    outputs = list(meta.subclass_fw_graph_out_meta)
    of_user = outputs[len(set(meta.mutated_inp_runtime_indices)) : len(outputs) - bases]
    described: dict[str, Any] = {
        name: _dense(getattr(meta, name))
        for name in ("subclass_inp_meta", "subclass_fw_graph_out_meta", "subclass_tangent_meta")
    }
    described["input_info"] = _per_slot(meta.input_info, meta.subclass_inp_meta, "input_info")
    described["output_info"] = _per_slot(meta.output_info, of_user, "output_info")
    described["num_intermediate_bases"] = sum(map(_count, outputs[len(outputs) - bases :])) if bases else 0
    mutated = compute_inner_mutated_inp_indices_from_subclass_meta(meta)
    if isinstance(meta, FunctionMeta):
        described = {name: tuple(x) if isinstance(x, list) else x for name, x in described.items()}
        return dataclasses.replace(meta, **described, mutated_inp_runtime_indices=mutated)
    tangents, descs = list(meta.traced_tangents), getattr(meta, "traced_tangents_descs", None)
    if descs is None:  # torch 2.4 has none, and unwraps one level, as its metas say
        metas = meta.subclass_tangent_meta if tangents else []
        described["traced_tangents"] = unwrap_tensor_subclasses(tangents, append_symints=False, subclass_metas=metas)
    else:
        described["traced_tangents"], described["traced_tangents_descs"] = unwrap_tensor_subclasses(
            tangents, list(descs), append_symints=False
        )
    return dataclasses.replace(meta, **described)  # which finds the mutated inputs by `input_info`


def compute_inner_mutated_inp_indices_from_subclass_meta(
    fw_metadata: AnyMeta, inner_metadata: AnyMeta | None = None
) -> list[int]:
    """Returns the flat positions that a backend must treat as mutated, to be on the safe side.

    Every slot of a mutated wrapper counts, sizes and strides too. Where it is known which leaves were written,
    `IndexMap.written` is exact.

    Args:
        fw_metadata: Anything with `subclass_inp_meta`, one meta for each outer input, and
            `mutated_inp_runtime_indices`, the positions of those that are mutated: a `FunctionMeta`, or AOTAutograd's
            `ViewAndMutationMeta`.
        inner_metadata: The same for the dense graph. Where `subclass_inp_meta` is empty, its positions are the answer;
            else what it says of each input is compared.

    Returns:
        Flat positions, ascending.

    Raises:
        PlanError: A position is that of no input, or the two say other things of one input.
    """
    metas = fw_metadata.subclass_inp_meta
    if not metas:
        return [] if inner_metadata is None else list(inner_metadata.mutated_inp_runtime_indices)
    for position in fw_metadata.mutated_inp_runtime_indices:
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(metas):
            raise PlanError(_NO_POSITION.format(position=position, count=len(metas)))
    _compare(metas, getattr(fw_metadata, "input_info", ()), getattr(inner_metadata, "input_info", ()))
    ends = [0, *itertools.accumulate(map(_count, metas))]
    mutated = sorted(set(fw_metadata.mutated_inp_runtime_indices))
    return [flat for outer in mutated for flat in range(ends[outer], ends[outer + 1])]


def _compare(metas: Sequence[Any], outer_infos: Sequence[Any], inner_infos: Sequence[Any]) -> None:
    """Compares what is said of values with what is said of leaves, where both say something."""
    if outer_infos and len(outer_infos) != len(metas):
        of, name = f"{len(metas)} inputs", "input_info"
        raise PlanError(_COUNTS.format(what="fw_metadata.input_info", count=len(outer_infos), of=of, name=name))
    leaves = [(outer, meta) for outer, meta in enumerate(metas) for _ in range(_count(meta))]
    if inner_infos and len(inner_infos) != len(leaves):
        of, name = f"{len(leaves)} leaves", "inner_metadata"
        raise PlanError(_COUNTS.format(what="inner_metadata.input_info", count=len(inner_infos), of=of, name=name))
    for flat, (outer, meta) in enumerate(leaves if outer_infos and inner_infos else ()):
        if not is_of_wrapper(meta) and inner_infos[flat] != outer_infos[outer]:
            inner, info = inner_infos[flat], outer_infos[outer]
            raise PlanError(_OTHER_INFO.format(flat=flat, inner=inner, outer=outer, info=info))


def _count(meta: object) -> int:
    """Returns how many flat slots a value takes. AOTAutograd's metas of plain values do not say it."""
    count: int = getattr(meta, "arg_count", 1)
    return count


def _dense(metas: Sequence[Any]) -> list[Any]:
    """Returns one meta for each slot, of the same make."""
    if all(isinstance(meta, PlainTensorMeta | SubclassCreationMeta) for meta in metas):
        kinds = {"size": int, "stride": int, "opaque": object}
        return [
            slot.meta if isinstance(slot.meta, PlainTensorMeta) else PlainTensorMeta(slot.flat, kinds[slot.kind])
            for slot in IndexMap.of(metas).slots
        ]
    positions = range(sum(map(_count, metas)))
    if any(isinstance(meta, int) or is_of_one_level(meta) for meta in metas):  # numbers, as torch has before 2.6
        return list(positions)
    return [_torch.aotautograd.plain_meta(i) for i in positions]


def _per_slot(infos: Sequence[Any], metas: Sequence[Any], name: str) -> list[Any]:
    if infos and len(infos) != len(metas):
        raise PlanError(_COUNTS.format(what=name, count=len(infos), of=f"{len(metas)} values", name=name))
    return list(_repeated(infos, metas))


def _repeated(infos: Sequence[Any], metas: Sequence[Any]) -> Iterator[Any]:
    for info, meta in zip(infos, metas, strict=False):
        yield from [info] * _count(meta)
