"""From flat slots to values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.doors.aotautograd.arguments import AnyMeta, Generated, are_ours, is_of_wrapper, refuse_no_list
from subclass_aot.doors.aotautograd.unwrap import joint_structure
from subclass_aot.errors import LeafCountError, PlanError
from subclass_aot.kit.flatten import ContainerMeta, FlattenPlan, SubclassCreationMeta, ValueMeta

_NAME = "wrap_tensor_subclasses"

_OTHER_SYMINTS = """{name}: described with count_symints={described}, wrapped with included_subclass_symints={given}.
Primals and outputs have slots for symbolic sizes, tangents have none."""

_OUT_OF_RANGE = "args[{i}]: its meta says slot {position} of the flat list, which has {count}."


def wrap_tensor_subclasses(
    unwrapped_args: Sequence[Any],
    *,
    subclass_metas: Sequence[Any],
    num_fw_outs_saved_for_bw: int | None = None,
    included_subclass_symints: bool = False,
    is_runtime: bool = False,
    make_subclass_override: Callable[[Any, bool, Sequence[Any]], Any] | None = None,
) -> tuple[Any, ...]:
    """Rebuilds values from their flat slots. Sizes and dtypes of leaves are not checked.

    Args:
        unwrapped_args: The flat list.
        subclass_metas: What to rebuild: metas of this library, or AOTAutograd's own.
        num_fw_outs_saved_for_bw: How many activations follow in the flat list; they follow the values and stay dense.
        included_subclass_symints: Whether the flat list has slots for symbolic sizes; must be as in the metas.
        is_runtime: Whether wrappers are left without the `requires_grad` of those that AOTAutograd's metas hold. Metas
            of this library hold none, so it makes no difference to them.
        make_subclass_override: Makes each wrapper, of its meta, `is_runtime` and the flat list.

    Raises:
        PlanError: There is no flat list, an inner tensor is none, or the metas were made with another `count_symints`.
        LeafCountError: The flat list is too long or too short.
    """
    refuse_no_list(unwrapped_args, "unwrapped_args", _NAME)
    refuse_no_list(subclass_metas, "subclass_metas", _NAME)
    saved = num_fw_outs_saved_for_bw or 0
    if make_subclass_override is None and are_ours(subclass_metas):
        wrap: Callable[[Sequence[Any]], tuple[Any, ...]] = _wraps.get(subclass_metas, included_subclass_symints, saved)
        return wrap(unwrapped_args)
    planned = sum(getattr(meta, "arg_count", 1) for meta in subclass_metas) + saved
    if planned != len(unwrapped_args):
        raise LeafCountError(f"args: planned for {planned} leaves, got {len(unwrapped_args)}.")
    values = []
    for i, meta in enumerate(subclass_metas):
        if not is_of_wrapper(meta):
            position = getattr(meta, "unwrapped_idx", meta)
            if not isinstance(position, int) or not 0 <= position < len(unwrapped_args):
                raise PlanError(_OUT_OF_RANGE.format(i=i, position=position, count=len(unwrapped_args)))
            values.append(unwrapped_args[position])
            continue
        _refuse_other_symints(meta, i, included_subclass_symints)
        if make_subclass_override is not None:
            values.append(make_subclass_override(meta, is_runtime, unwrapped_args))
        else:
            values.append(FlattenPlan.rebuild_by(meta, unwrapped_args, is_runtime=is_runtime, name=f"args[{i}]"))
    return (*values, *unwrapped_args[planned - saved :])


def wrap_tensor_subclasses_maybe_joint(
    unwrapped_args: Sequence[Any], *, is_joint_structure: bool, meta: AnyMeta
) -> tuple[Any, ...]:
    """Rebuilds the arguments of an inference graph, or the primals and tangents of a joint graph.

    Args:
        unwrapped_args: A flat list; for a joint graph `(primals, tangents)`, two flat lists.
        is_joint_structure: Which of the two.
        meta: A `FunctionMeta`, or AOTAutograd's `ViewAndMutationMeta`.

    Returns:
        The values; for a joint graph `(primals, tangents)`.

    Raises:
        PlanError: A joint structure was promised, and something else given.
    """
    metas = meta.subclass_inp_meta
    symints = _have_slots(metas)
    if not is_joint_structure:
        return wrap_tensor_subclasses(unwrapped_args, subclass_metas=metas, included_subclass_symints=symints)
    primals, tangents = joint_structure(unwrapped_args)
    return (
        wrap_tensor_subclasses(primals, subclass_metas=metas, included_subclass_symints=symints),
        wrap_tensor_subclasses(tangents, subclass_metas=meta.subclass_tangent_meta),
    )


def _have_slots(metas: Sequence[Any]) -> bool:
    """Returns whether metas have slots for sizes; those of torch 2.4 have none, and do not say so."""
    return any(getattr(meta, "included_subclass_symints", False) for meta in metas)


def _refuse_other_symints(meta: AnyMeta, i: int, given: bool) -> None:
    described = getattr(meta, "included_subclass_symints", False)
    if described != given and _has_symbols(meta):
        raise PlanError(_OTHER_SYMINTS.format(name=f"args[{i}]", described=described, given=given))


def _has_symbols(meta: AnyMeta) -> bool:
    """Returns whether a size of a wrapper, or of one inside, is symbolic: else both ways to count slots are one."""
    numbers = (*getattr(meta, "outer_size", ()), *getattr(meta, "outer_stride", ()))
    inner = (meta.items if isinstance(meta, ContainerMeta) else getattr(meta, "attrs", {})).values()
    # `None` stands for a symbolic number in a meta of this library, and torch keeps the number.
    return any(n is None or isinstance(n, torch.SymInt) for n in numbers) or any(map(_has_symbols, inner))


def _make_wrap(metas: tuple[ValueMeta, ...], symints: bool, activations: int) -> Callable[[Sequence[Any]], Any]:
    for i, meta in enumerate(metas):
        if isinstance(meta, SubclassCreationMeta):
            _refuse_other_symints(meta, i, symints)
    return FlattenPlan(metas).generate_wrap(check=False, activations=activations, only_tensors=True)


_wraps = Generated(_make_wrap)
