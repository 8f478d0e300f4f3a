"""From flat slots to values, by metas of ours and by torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import schemas
from torch._functorch._aot_autograd import subclass_utils as torchs
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.doors.aotautograd import (
    FunctionMeta,
    create_subclass_meta,
    unwrap_tensor_subclasses,
    wrap_tensor_subclasses,
    wrap_tensor_subclasses_maybe_joint,
)
from subclass_aot.errors import LeafCountError, PlanError
from tests.doors.aotautograd.lists import VALUES as LISTS
from tests.doors.aotautograd.lists import fakes_of, two, view_and_mutation_meta

VALUES: list[Any] = [two(1), torch.ones(3), TwoTensor(two(2), two(3)), 4]
METAS = create_subclass_meta(VALUES)
PLAIN = create_subclass_meta([torch.ones(1)])
LEAVES = unwrap_tensor_subclasses(VALUES, append_symints=True)


def same(a: Any, b: Any) -> None:
    """Two values are made of the same leaves, in the same way."""
    assert type(a) is type(b)
    if not isinstance(a, torch.Tensor) or not hasattr(a, "__tensor_flatten__"):
        assert a is b
        return
    assert (str(a.shape), str(a.stride())) == (str(b.shape), str(b.stride()))
    assert (a.requires_grad, a.is_leaf, a.dtype) == (b.requires_grad, b.is_leaf, b.dtype)
    names, context = a.__tensor_flatten__()
    assert (names, context) == b.__tensor_flatten__()
    for name in names:
        same(getattr(a, name), getattr(b, name))


def safe(metas: list[Any]) -> list[Any]:
    for meta in metas:
        if isinstance(meta, schemas.SubclassCreationMeta):
            meta.make_runtime_safe()
    return metas


@given(LISTS, st.booleans(), st.booleans(), st.integers(0, 2), st.booleans())
def test_values_are_torchs(values: list[Any], symbolic: bool, symints: bool, saved: int, grad: bool) -> None:
    fakes = fakes_of(values, symbolic)
    for fake in fakes if grad else ():
        if isinstance(fake, torch.Tensor):
            fake.requires_grad_()
    theirs = torchs.create_subclass_meta(fakes, count_symints=symints)
    ours = create_subclass_meta(fakes, count_symints=symints)
    options: Any = {"included_subclass_symints": symints, "num_fw_outs_saved_for_bw": saved or None}
    activations = [torch.ones(i + 1) for i in range(saved)]
    leaves = [*unwrap_tensor_subclasses(fakes, append_symints=symints), *activations]
    expected = torchs.wrap_tensor_subclasses(leaves, subclass_metas=theirs, **options)
    for a, b in zip(expected, wrap_tensor_subclasses(leaves, subclass_metas=theirs, **options), strict=True):
        same(a, b)
    safe(theirs)
    metas: list[Any] = theirs
    flat = unwrap_tensor_subclasses(values, append_symints=symints, subclass_metas=metas)
    leaves = [*flat, *activations]
    if not symints and symbolic:  # then torch has no sizes for the wrappers of tangents, and ours has
        wrap_tensor_subclasses(leaves, subclass_metas=ours, is_runtime=True, **options)
        return
    expected = torchs.wrap_tensor_subclasses(leaves, subclass_metas=theirs, is_runtime=True, **options)
    for metas in (theirs, ours):
        found = wrap_tensor_subclasses(tuple(leaves), subclass_metas=metas, is_runtime=True, **options)
        for a, b in zip(expected, found, strict=True):
            same(a, b)


@given(LISTS, LISTS, st.booleans())
def test_joint_structures_are_torchs(primals: list[Any], tangents: list[Any], symbolic: bool) -> None:
    fakes, others = fakes_of(primals, symbolic), fakes_of(tangents, False)
    meta = view_and_mutation_meta(
        torchs.create_subclass_meta(fakes), tangents=torchs.create_subclass_meta(others, count_symints=False)
    )
    flat = unwrap_tensor_subclasses(fakes, append_symints=True), unwrap_tensor_subclasses(others, append_symints=False)
    ours = FunctionMeta(
        create_subclass_meta(fakes), subclass_tangent_meta=create_subclass_meta(others, count_symints=False)
    )
    for kind, arguments in ((True, flat), (False, flat[0])):
        expected: Any = torchs.wrap_tensor_subclasses_maybe_joint(arguments, is_joint_structure=kind, meta=meta)
        for given_meta in (meta, ours):
            found: Any = wrap_tensor_subclasses_maybe_joint(arguments, is_joint_structure=kind, meta=given_meta)
            for a, b in (
                zip(sum(expected, ()), sum(found, ()), strict=True) if kind else zip(expected, found, strict=True)
            ):
                same(a, b)


def test_as_in_torch_2_4() -> None:
    """What is not said of slots for sizes makes no difference if no size is symbolic; see `test_torch_2_4.py`."""
    leaves = [torch.ones(2), torch.zeros(2)]
    assert wrap_tensor_subclasses(leaves, subclass_metas=create_subclass_meta([two()]))[0].a is leaves[0]


def test_slots_for_sizes_are_as_described() -> None:
    fakes = fakes_of([two()], True)
    for kind in (create_subclass_meta, torchs.create_subclass_meta):
        for described in (False, True):
            metas = kind(fakes, count_symints=described)
            leaves = unwrap_tensor_subclasses(fakes, append_symints=described)
            with pytest.raises(PlanError, match=rf"args\[0\]: described with count_symints={described}, wrapped with"):
                wrap_tensor_subclasses(leaves, subclass_metas=metas, included_subclass_symints=not described)


def test_activations_follow_and_stay_dense() -> None:
    saved = [torch.ones(5), torch.ones(6)]
    for sequence in (list, tuple):
        outputs = wrap_tensor_subclasses(
            sequence(LEAVES + saved),
            subclass_metas=METAS,
            num_fw_outs_saved_for_bw=2,
            included_subclass_symints=True,
        )
        assert type(outputs) is tuple
        assert [type(x) for x in outputs[:4]] == [TwoTensor, torch.Tensor, TwoTensor, int]
        assert outputs[4] is saved[0] and outputs[5] is saved[1]
    with pytest.raises(LeafCountError, match="planned for 10 leaves, got 8"):
        wrap_tensor_subclasses(LEAVES, subclass_metas=METAS, num_fw_outs_saved_for_bw=2, included_subclass_symints=True)


def test_leaves_of_plain_values_may_be_anything() -> None:
    assert wrap_tensor_subclasses([None], subclass_metas=PLAIN) == (None,)  # a gradient that is not there


def test_what_makes_wrappers_may_be_given() -> None:
    theirs = torchs.create_subclass_meta(fakes_of(VALUES, False))
    for metas in (METAS, safe(theirs)):
        found = wrap_tensor_subclasses(
            LEAVES, subclass_metas=metas, included_subclass_symints=True, is_runtime=True,
            make_subclass_override=lambda meta, is_runtime, flat: (is_runtime, flat[meta.flat_tensor_start_idx]),
        )  # fmt: skip
        assert found[0] == (True, LEAVES[0]) and found[2] == (True, LEAVES[3]) and found[1] is LEAVES[2]


@pytest.mark.parametrize("values", [two(), torch.ones(8, 2), {"a": torch.ones(2)}, None, iter([])])
def test_what_is_no_list_is_refused(values: Any) -> None:
    for options in ({"subclass_metas": METAS}, {"subclass_metas": torchs.create_subclass_meta([1])}):
        with pytest.raises(PlanError, match="^`unwrapped_args` is .*, and not a list or tuple of values"):
            wrap_tensor_subclasses(values, included_subclass_symints=True, **options)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="^`subclass_metas` is .*, and not a list or tuple of values"):
        wrap_tensor_subclasses(LEAVES, subclass_metas=values)


WRONG = {
    1: (None, r"args\[0\].b: planned as an inner tensor, got None"),
    3: (7, r"args\[2\].a.a: planned as an inner tensor, got an object of type int"),
    6: ("x", r"args\[2\].b.b: planned as an inner tensor, got an object of type str"),
}


@pytest.mark.parametrize("position", WRONG)
def test_what_is_no_tensor_is_no_leaf(position: int) -> None:
    leaf, message = WRONG[position]
    leaves = [*LEAVES[:position], leaf, *LEAVES[position + 1 :]]
    for metas in (METAS, safe(torchs.create_subclass_meta(fakes_of(VALUES, False)))):
        with pytest.raises(PlanError, match=message):
            wrap_tensor_subclasses(leaves, subclass_metas=metas, included_subclass_symints=True, is_runtime=True)


def test_a_tensor_is_no_size() -> None:
    fakes = fakes_of([two()], True)
    for kind in (create_subclass_meta, torchs.create_subclass_meta):
        leaves = unwrap_tensor_subclasses(fakes, append_symints=True)
        with pytest.raises(PlanError, match=r"args\[0\].size\(0\): planned as a size, got Tensor"):
            wrap_tensor_subclasses(
                [*leaves[:2], torch.ones(1)], subclass_metas=kind(fakes), included_subclass_symints=True
            )


def test_positions_are_in_the_list() -> None:
    theirs: Any = torchs.create_subclass_meta(fakes_of(VALUES, False))
    with pytest.raises(LeafCountError, match="planned for 8 leaves, got 7"):
        wrap_tensor_subclasses(LEAVES[1:], subclass_metas=theirs, included_subclass_symints=True)
    with pytest.raises(PlanError, match=r"args\[0\]: its meta says slot 9 of the flat list, which has 1"):
        wrap_tensor_subclasses(LEAVES[:1], subclass_metas=[schemas.PlainTensorMeta(9)])
    with pytest.raises(PlanError, match=r"args\[0\]: its meta says slot -1 of the flat list"):
        wrap_tensor_subclasses(LEAVES[:1], subclass_metas=[-1])
    with pytest.raises(PlanError, match=r"args\[0\]: its meta says slot None of the flat list"):
        wrap_tensor_subclasses(LEAVES[:1], subclass_metas=[None])
    with pytest.raises(LeafCountError, match=r"args\[0\].a.b: its slot is number 4 of the flat list, which has 4"):
        wrap_tensor_subclasses(LEAVES[:4], subclass_metas=[theirs[2]], included_subclass_symints=True)


@pytest.mark.parametrize("wrong", [[1, 2, 3], ([1],), ([1], 2), two(), None])
def test_a_joint_structure_is_two_lists(wrong: Any) -> None:
    with pytest.raises(PlanError, match=r"two flat lists, `\(primals, tangents\)`; got "):
        wrap_tensor_subclasses_maybe_joint(wrong, is_joint_structure=True, meta=FunctionMeta(()))


def test_inference_and_joint() -> None:
    tangents = create_subclass_meta([VALUES[2]], count_symints=False)
    meta = FunctionMeta(METAS, subclass_tangent_meta=tangents)
    grads = [torch.rand(2) for _ in range(4)]
    inference = wrap_tensor_subclasses_maybe_joint(LEAVES, is_joint_structure=False, meta=meta)
    assert [type(x) for x in inference] == [TwoTensor, torch.Tensor, TwoTensor, int]
    primals, (tangent,) = wrap_tensor_subclasses_maybe_joint((LEAVES, grads), is_joint_structure=True, meta=meta)
    assert [type(x) for x in primals] == [type(x) for x in inference]
    assert tangent.b.a is grads[2]
