"""Torch 2.4's metadata, field by field, and its seven functions, to be compared with on lists that are drawn anew.

Torch's own answers are in `torch_2_4.json`, and these functions are held to them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


@dataclass
class SubclassCreationMeta:
    flat_tensor_start_idx: int
    arg_count: int
    original_subclass: Any
    meta: Any
    inner_keys: list[Any]
    outer_size: Any
    outer_stride: Any

    def creation_fn(self, all_args: Any, *, is_runtime: bool) -> Any:
        own = all_args[self.flat_tensor_start_idx : self.flat_tensor_start_idx + self.arg_count]
        inner = dict(zip(self.inner_keys, own, strict=True))
        unflatten = type(self.original_subclass).__tensor_unflatten__
        made = unflatten(inner, self.meta, self.outer_size, self.outer_stride)
        if not is_runtime:
            torch._mirror_autograd_meta_to(self.original_subclass, made)  # type: ignore[attr-defined]
        return made


@dataclass(frozen=True)
class InputAliasInfo:
    is_leaf: bool
    mutates_data: bool
    mutates_metadata: bool
    mutations_hidden_from_autograd: bool
    mutations_under_no_grad_or_inference_mode: bool
    mutation_inductor_storage_resize: bool
    mutates_storage_metadata: bool
    requires_grad: bool
    keep_input_mutations: bool


@dataclass(eq=False)
class ViewAndMutationMeta:
    input_info: list[Any]
    output_info: list[Any]
    num_intermediate_bases: int
    keep_input_mutations: bool
    traced_tangents: list[Any]
    subclass_inp_meta: list[Any]
    subclass_fw_graph_out_meta: list[Any]
    subclass_tangent_meta: list[Any]
    is_train: bool = False
    num_symints_saved_for_bw: int | None = None
    grad_enabled_mutation: bool | None = None
    deterministic: bool | None = None
    static_parameter_indices: list[int] = field(default_factory=list)
    tokens: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_out_graph = [info.mutates_data and not info.keep_input_mutations for info in self.input_info]
        self.mutated_inp_runtime_indices = [i for i, is_out in enumerate(is_out_graph) if is_out]
        self.num_mutated_inp_runtime_indices = len(self.mutated_inp_runtime_indices)
        self.num_outputs = len(self.output_info)
        self.output_types = list(map(type, self.traced_tangents))
        self.num_forward = self.num_mutated_inp_runtime_indices + self.num_outputs + self.num_intermediate_bases


def requires_subclass_dispatch(args: Any, fw_metadata: Any) -> bool:
    of_arguments = map(is_traceable_wrapper_subclass, pytree.arg_tree_leaves(*args))
    return any(of_arguments) or any(type(x) is SubclassCreationMeta for x in fw_metadata.subclass_fw_graph_out_meta)


def create_subclass_meta(curr_args: Any) -> list[Any]:
    metas: list[Any] = []
    at = 0
    for value in curr_args:
        if is_traceable_wrapper_subclass(value):
            names, context = value.__tensor_flatten__()
            metas.append(SubclassCreationMeta(at, len(names), value, context, list(names), value.shape, value.stride()))
        else:
            metas.append(at)
        at += _count(metas[-1])
    return metas


def unwrap_tensor_subclasses(args: Any, *, is_joint_structure: bool, subclass_metas: Any = None) -> Any:
    def one_level(values: Any) -> list[Any]:
        leaves: list[Any] = []
        for value in values:
            wrapped = is_traceable_wrapper_subclass(value)
            leaves += [getattr(value, name) for name in value.__tensor_flatten__()[0]] if wrapped else [value]
        return leaves

    return tuple(map(one_level, args)) if is_joint_structure else one_level(args)


def wrap_tensor_subclasses(
    unwrapped_args: Any, *, subclass_metas: Any, num_fw_outs_saved_for_bw: int | None = None, is_runtime: bool = False
) -> tuple[Any, ...]:
    made = [
        unwrapped_args[meta] if isinstance(meta, int) else meta.creation_fn(unwrapped_args, is_runtime=is_runtime)
        for meta in subclass_metas
    ]
    used = sum(map(_count, subclass_metas))
    assert len(unwrapped_args) == used + (num_fw_outs_saved_for_bw or 0)
    return (*made, *unwrapped_args[used:])


def wrap_tensor_subclasses_maybe_joint(unwrapped_args: Any, *, is_joint_structure: bool, meta: Any) -> Any:
    if not is_joint_structure:
        return wrap_tensor_subclasses(unwrapped_args, subclass_metas=meta.subclass_inp_meta)
    primals, tangents = unwrapped_args
    return (
        wrap_tensor_subclasses(primals, subclass_metas=meta.subclass_inp_meta),
        wrap_tensor_subclasses(tangents, subclass_metas=meta.subclass_tangent_meta),
    )


def create_metadata_for_subclass(meta: Any) -> Any:
    """Returns what torch 2.4 hands to `ViewAndMutationMeta`, which then fails, since it reads lists that are None."""
    of_user = meta.subclass_fw_graph_out_meta[meta.num_mutated_inp_runtime_indices :]
    of_user = of_user[: -meta.num_intermediate_bases] if meta.num_intermediate_bases else of_user
    assert len(meta.output_info) == len(of_user)
    repeated = (_repeated(meta.input_info, meta.subclass_inp_meta), _repeated(meta.output_info, of_user))
    return SimpleNamespace(input_info=repeated[0], output_info=repeated[1])


def compute_inner_mutated_inp_indices_from_subclass_meta(fw_metadata: Any, inner_metadata: Any) -> list[int]:
    metas, infos = fw_metadata.subclass_inp_meta, fw_metadata.input_info
    if not metas:
        return list(inner_metadata.mutated_inp_runtime_indices)
    assert len(metas) == len(infos)
    flat, of_plain = _repeated(infos, metas), _repeated([isinstance(meta, int) for meta in metas], metas)
    if inner_metadata is not None:
        assert len(inner_metadata.input_info) == len(flat)
        for inner, outer, is_plain in zip(inner_metadata.input_info, flat, of_plain, strict=True):
            assert not is_plain or inner == outer
    return [i for i, info in enumerate(flat) if info.mutates_data and not info.keep_input_mutations]


def _count(meta: Any) -> int:
    return 1 if isinstance(meta, int) else meta.arg_count  # type: ignore[no-any-return]


def _repeated(infos: Any, metas: Any) -> list[Any]:
    return [info for info, meta in zip(infos, metas, strict=True) for _ in range(_count(meta))]


# ------------------------------------------------------------------------------------------ what `cases.py` is to have


ONLY_FAKE = False


def function_meta(**fields: Any) -> ViewAndMutationMeta:
    return ViewAndMutationMeta(**fields, keep_input_mutations=False)


def input_info(how: str) -> InputAliasInfo:
    given = dict.fromkeys((x.name for x in dataclasses.fields(InputAliasInfo)), False)
    return InputAliasInfo(**{**given, "mutates_data": how != ".", "keep_input_mutations": how == "i"})


def output_info() -> object:
    return object()
