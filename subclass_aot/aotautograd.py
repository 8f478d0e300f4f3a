"""The functions that authors of compilers know from AOTAutograd, under their names and calling conventions.

Where metas are given, the work is done by generated code, made once for each list of metas.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optree
import torch

from subclass_aot._torch import is_nested_int, is_traceable_wrapper_subclass
from subclass_aot.errors import PlanError
from subclass_aot.flatten import FlattenPlan, IndexMap, PlainTensorMeta, SubclassCreationMeta, ValueMeta
from subclass_aot.flatten import create_subclass_meta as create_subclass_meta
from subclass_aot.symbols import Number

__all__ = [
    "FunctionMeta",
    "compute_inner_mutated_inp_indices_from_subclass_meta",
    "create_metadata_for_subclass",
    "create_subclass_meta",
    "requires_subclass_dispatch",
    "unwrap_tensor_subclasses",
    "wrap_tensor_subclasses",
    "wrap_tensor_subclasses_maybe_joint",
]


@dataclass(frozen=True)
class FunctionMeta:
    """What is known about the inputs and outputs of a function, in terms of wrappers or of leaves.

    The names are those of AOTAutograd's `ViewAndMutationMeta`, and functions here that take one take the other too.

    Args:
        subclass_inp_meta: One meta for each input.
        subclass_fw_graph_out_meta: One meta for each output of the forward graph that is not a saved activation.
        subclass_tangent_meta: One meta for each tangent, made with `count_symints=False`.
        input_info: Anything a compiler notes about each input.
        output_info: Anything a compiler notes about each user output, which are the last outputs.
        mutated_inp_runtime_indices: The positions of mutated inputs.
    """

    subclass_inp_meta: Sequence[ValueMeta]
    subclass_fw_graph_out_meta: Sequence[ValueMeta] = ()
    subclass_tangent_meta: Sequence[ValueMeta] = ()
    input_info: Sequence[Any] = ()
    output_info: Sequence[Any] = ()
    mutated_inp_runtime_indices: Sequence[int] = ()


def requires_subclass_dispatch(args: Any, fw_metadata: FunctionMeta) -> bool:
    """Whether anything must be unwrapped or wrapped around a call: some argument or output is a wrapper.

    Args:
        args: Any structure of arguments.
        fw_metadata: A `FunctionMeta`.
    """
    leaves: list[Any] = optree.tree_leaves(args, none_is_leaf=True)
    return any(map(is_traceable_wrapper_subclass, leaves)) or any(
        isinstance(meta, SubclassCreationMeta) for meta in fw_metadata.subclass_fw_graph_out_meta
    )


def unwrap_tensor_subclasses(
    wrapped_args: Sequence[Any], *, append_symints: bool, subclass_metas: Sequence[ValueMeta] | None = None
) -> list[Any]:
    """The flat slots of all values. See Note [Leaf order].

    Args:
        wrapped_args: Dense tensors, wrapper tensors, and anything else.
        append_symints: Whether the symbolic sizes and strides of wrappers have slots: for primals, not for tangents.
        subclass_metas: What the values are planned to be. With them, which sizes have slots is as planned, classes are
            checked, and generated code does the work; without them, what the values are is found out again.

    Raises:
        PlanError: The values are not what the metas say.
    """
    if subclass_metas is None:
        return [leaf for value in wrapped_args for leaf in _leaves(value, append_symints)]
    unwrap: Callable[[Sequence[Any]], list[Any]] = _unwraps.get(subclass_metas, append_symints)
    return unwrap(wrapped_args)


def wrap_tensor_subclasses(
    unwrapped_args: Sequence[Any],
    *,
    subclass_metas: Sequence[ValueMeta],
    num_fw_outs_saved_for_bw: int | None = None,
    included_subclass_symints: bool = False,
) -> tuple[Any, ...]:
    """Rebuilds values from their flat slots. Only the number of slots is checked.

    Args:
        unwrapped_args: The flat list.
        subclass_metas: What to rebuild.
        num_fw_outs_saved_for_bw: How many activations follow in the flat list; they follow the values and stay dense.
        included_subclass_symints: Whether the flat list has slots for symbolic sizes; must be as in the metas.

    Raises:
        PlanError: The metas were made with another `count_symints`.
        LeafCountError: The flat list is too long or too short.
    """
    wrap: Callable[[Sequence[Any]], tuple[Any, ...]] = _wraps.get(
        subclass_metas, included_subclass_symints, num_fw_outs_saved_for_bw or 0
    )
    return wrap(unwrapped_args)


def wrap_tensor_subclasses_maybe_joint(
    unwrapped_args: Sequence[Any], *, is_joint_structure: bool, meta: FunctionMeta
) -> tuple[Any, ...]:
    """Rebuilds the arguments of an inference graph, or the primals and tangents of a joint graph.

    Args:
        unwrapped_args: A flat list; for a joint graph `(primals, tangents)`, two flat lists.
        is_joint_structure: Which of the two.
        meta: A `FunctionMeta`.

    Returns:
        The values; for a joint graph `(primals, tangents)`.

    Raises:
        PlanError: A joint structure was promised, and something else given.
    """
    if not is_joint_structure:
        return wrap_tensor_subclasses(
            unwrapped_args, subclass_metas=meta.subclass_inp_meta, included_subclass_symints=True
        )
    if len(unwrapped_args) != 2 or not all(isinstance(part, list | tuple) for part in unwrapped_args):
        raise PlanError(
            "the arguments of a joint graph are two flat lists, `(primals, tangents)`; got "
            + ", ".join(type(part).__name__ for part in unwrapped_args)
        )
    primals, tangents = unwrapped_args
    return (
        wrap_tensor_subclasses(primals, subclass_metas=meta.subclass_inp_meta, included_subclass_symints=True),
        wrap_tensor_subclasses(tangents, subclass_metas=meta.subclass_tangent_meta),
    )


def create_metadata_for_subclass(meta: FunctionMeta) -> FunctionMeta:
    """The same function in terms of leaves, for what works below wrappers: a partitioner, a dense compiler.

    What was noted about a wrapper is noted about each of its slots; which leaves are really written is known better by
    `IndexMap.written`.
    """
    outputs = IndexMap.of(meta.subclass_fw_graph_out_meta)
    others = len(outputs.ranges) - len(meta.output_info)  # mutated inputs come before the user outputs
    return replace(
        meta,
        subclass_inp_meta=_dense(IndexMap.of(meta.subclass_inp_meta)),
        subclass_fw_graph_out_meta=_dense(outputs),
        subclass_tangent_meta=_dense(IndexMap.of(meta.subclass_tangent_meta)),
        input_info=_per_slot(meta.input_info, meta.subclass_inp_meta),
        output_info=_per_slot(meta.output_info, meta.subclass_fw_graph_out_meta[others:]),
        mutated_inp_runtime_indices=compute_inner_mutated_inp_indices_from_subclass_meta(meta),
    )


def compute_inner_mutated_inp_indices_from_subclass_meta(
    fw_metadata: FunctionMeta, inner_metadata: FunctionMeta | None = None
) -> list[int]:
    """The flat positions that a backend must treat as mutated, to be on the safe side.

    Every slot of a mutated wrapper counts, sizes and strides too. Where it is known which leaves were written,
    `IndexMap.written` is exact.

    Args:
        fw_metadata: Anything with `subclass_inp_meta`, one meta for each outer input, and
            `mutated_inp_runtime_indices`, the positions of those that are mutated; a `FunctionMeta`, for one.
        inner_metadata: The same for the dense graph; used only where `subclass_inp_meta` is empty.

    Returns:
        Flat positions, ascending.
    """
    if not fw_metadata.subclass_inp_meta:
        return [] if inner_metadata is None else list(inner_metadata.mutated_inp_runtime_indices)
    ends = [0, *itertools.accumulate(getattr(meta, "arg_count", 1) for meta in fw_metadata.subclass_inp_meta)]
    mutated = sorted(set(fw_metadata.mutated_inp_runtime_indices))
    return [flat for outer in mutated for flat in range(ends[outer], ends[outer + 1])]


def _dense(index_map: IndexMap) -> tuple[PlainTensorMeta, ...]:
    kinds = {"size": int, "stride": int, "opaque": object}
    return tuple(
        slot.meta if isinstance(slot.meta, PlainTensorMeta) else PlainTensorMeta(slot.flat, kinds[slot.kind])
        for slot in index_map.slots
    )


def _per_slot(infos: Sequence[Any], metas: Sequence[ValueMeta]) -> tuple[Any, ...]:
    return tuple(info for info, meta in zip(infos, metas, strict=bool(infos)) for _ in range(meta.arg_count))


def _leaves(value: Any, append_symints: bool) -> Iterator[Any]:
    """The flat slots of one value, found out by asking it."""
    if not is_traceable_wrapper_subclass(value):
        yield value
        return
    names, _ = value.__tensor_flatten__()
    for name in names:
        inner = getattr(value, name)
        for part in optree.tree_iter(inner) if type(inner) in (list, tuple, dict, type(None)) else (inner,):
            yield from _leaves(part, append_symints)
    if append_symints:
        numbers: list[Number] = [*value.size(), *value.stride()]
        yield from (n for n in numbers if isinstance(n, torch.SymInt) and not is_nested_int(n))


class _Generated:
    """The newest generated functions, by the identity of the metas they were generated for.

    Equality would be slower and not enough: contexts that are equal (`1`, `1.0`, `True`) may rebuild different tensors.
    """

    def __init__(self, make: Callable[..., Callable[[Sequence[Any]], Any]], capacity: int = 256) -> None:
        self._make = make
        self._capacity = capacity
        self._made: OrderedDict[object, tuple[tuple[ValueMeta, ...], Callable[[Sequence[Any]], Any]]] = OrderedDict()

    def get(self, metas: Iterable[ValueMeta], *options: object) -> Callable[[Sequence[Any]], Any]:
        kept = tuple(metas)
        key = (tuple(map(id, kept)), options)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = (kept, self._make(kept, *options))  # keeps the metas, so that ids stay theirs
            if len(self._made) > self._capacity:
                self._made.popitem(last=False)
        return found[1]


def _make_unwrap(metas: tuple[ValueMeta, ...], append_symints: bool) -> Callable[[Sequence[Any]], Any]:
    return FlattenPlan(metas).generate_unwrap(append_symints=append_symints)


def _make_wrap(metas: tuple[ValueMeta, ...], symints: bool, activations: int) -> Callable[[Sequence[Any]], Any]:
    for i, meta in enumerate(metas):
        if isinstance(meta, SubclassCreationMeta) and meta.included_subclass_symints != symints:
            raise PlanError(
                f"args[{i}]: described with count_symints={meta.included_subclass_symints}, "
                f"wrapped with included_subclass_symints={symints}.\n"
                "Primals and outputs have slots for symbolic sizes, tangents have none."
            )
    return FlattenPlan(metas).generate_wrap(check=False, activations=activations)


_unwraps = _Generated(_make_unwrap)
_wraps = _Generated(_make_wrap)
