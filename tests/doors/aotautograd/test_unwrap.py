"""From values to flat slots, by the conventions of three versions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import descriptors as words
from torch._functorch._aot_autograd import schemas
from torch._functorch._aot_autograd import subclass_utils as torchs
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from subclass_aot.doors.aotautograd import (
    create_subclass_meta,
    remap_unwrapped_subclass_arg_indices,
    runtime_unwrap_tensor_subclasses,
    unwrap_tensor_subclasses,
    unwrap_tensor_subclasses_with_indices_to_original,
)
from subclass_aot.engine.descriptors import PlainInput
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import IndexMap
from tests.doors.aotautograd.lists import VALUES as LISTS
from tests.doors.aotautograd.lists import fakes_of, pack, two
from tests.kit.flatten.test_creation import Bag

VALUES: list[Any] = [two(1), torch.ones(3), TwoTensor(two(2), two(3)), 4]
METAS = create_subclass_meta(VALUES)


def identical(a: Any, b: Any) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(x is y or (not isinstance(x, torch.Tensor) and str(x) == str(y)) for x, y in pairs)


@given(LISTS, st.booleans(), st.booleans(), st.booleans())
def test_slots_and_descriptors_are_torchs(values: list[Any], symbolic: bool, symints: bool, of_outputs: bool) -> None:
    fakes = fakes_of(values, symbolic)
    kind = words.PlainAOTOutput if of_outputs else words.PlainAOTInput
    descs = [kind(i) for i in range(len(fakes))]
    theirs, their_descs = torchs.unwrap_tensor_subclasses(fakes, descs, append_symints=symints)
    ours, our_descs = unwrap_tensor_subclasses(fakes, descs, append_symints=symints)
    assert identical(theirs, ours) and their_descs == our_descs
    assert identical(theirs, unwrap_tensor_subclasses(fakes, append_symints=symints))
    own = [PlainInput(f"args[{i}]", i) for i in range(len(fakes))]
    again, own_descs = unwrap_tensor_subclasses(fakes, own, append_symints=symints)
    assert identical(theirs, again)
    if not of_outputs:
        assert [desc.to_torch() for desc in own_descs] == their_descs


@given(LISTS, st.booleans(), st.booleans())
def test_slots_at_a_call_are_torchs(values: list[Any], symbolic: bool, symints: bool) -> None:
    fakes = fakes_of(values, symbolic)
    theirs = torchs.create_subclass_meta(fakes, count_symints=symints)
    ours = create_subclass_meta(fakes, count_symints=symints)
    before = runtime_unwrap_tensor_subclasses(fakes, append_symints=symints, subclass_metas=theirs)
    assert identical(
        torchs.unwrap_tensor_subclasses(fakes, [words.DummyAOTInput(0)] * len(fakes), append_symints=symints)[0], before
    )
    for meta in theirs:
        if isinstance(meta, schemas.SubclassCreationMeta):
            meta.make_runtime_safe()
    metas: list[Any] = theirs
    expected = torchs.runtime_unwrap_tensor_subclasses(values, append_symints=symints, subclass_metas=theirs)
    for metas in (theirs, ours):
        assert identical(
            expected, runtime_unwrap_tensor_subclasses(values, append_symints=symints, subclass_metas=metas)
        )
        assert identical(expected, unwrap_tensor_subclasses(values, append_symints=symints, subclass_metas=metas))
    if not symints:
        assert identical(expected, runtime_unwrap_tensor_subclasses(values, append_symints=False))


def test_as_in_torch_2_4() -> None:
    flat = unwrap_tensor_subclasses(VALUES, is_joint_structure=False)
    assert len(flat) == 8 and flat[0] is VALUES[0].a and flat[4] is VALUES[2].a.b
    primals, tangents = unwrap_tensor_subclasses((VALUES, [two(5)]), is_joint_structure=True)
    assert identical(primals, flat) and len(tangents) == 2
    planned, tangents = unwrap_tensor_subclasses((VALUES, [two(5)]), is_joint_structure=True, subclass_metas=METAS)
    assert identical(planned, flat) and len(tangents) == 2


@given(LISTS, st.booleans())
def test_positions_of_values_and_of_leaves_are_torchs(values: list[Any], symbolic: bool) -> None:
    fakes = fakes_of(values, symbolic)
    leaves, outers = unwrap_tensor_subclasses_with_indices_to_original(fakes)
    their_leaves, their_outers = torchs.unwrap_tensor_subclasses_with_indices_to_original(fakes)
    assert identical(leaves, their_leaves) and outers == their_outers
    flat = unwrap_tensor_subclasses(fakes, append_symints=True)
    index_map = IndexMap.of(create_subclass_meta(fakes))
    for i in range(len(fakes)):
        positions = remap_unwrapped_subclass_arg_indices(fakes, [i])
        assert positions == index_map.to_flat([i])
        assert identical([flat[k] for k in positions], unwrap_tensor_subclasses([fakes[i]], append_symints=True))
    every_second = range(0, len(fakes), 2)
    assert remap_unwrapped_subclass_arg_indices(fakes, every_second) == index_map.to_flat(every_second)
    is_deep = any(map(is_traceable_wrapper_subclass, leaves_of_one_level(fakes)))
    if not (symbolic and is_deep):  # torch counts no sizes of wrappers inside wrappers here, and unwraps them
        for static in ([], list(every_second), list(reversed(every_second))):
            expected = torchs.remap_unwrapped_subclass_arg_indices(fakes, static)
            assert remap_unwrapped_subclass_arg_indices(fakes, static) == expected


def leaves_of_one_level(values: list[Any]) -> list[Any]:
    wrappers = [x for x in values if is_traceable_wrapper_subclass(x)]
    return [getattr(x, name) for x in wrappers for name in x.__tensor_flatten__()[0]]


@pytest.mark.parametrize("position", [4, -1, None, 1.0, True])
def test_a_position_is_that_of_a_value(position: Any) -> None:
    with pytest.raises(
        PlanError, match=f"^static_input_indices: {position!r} is the position of no value; there are 4"
    ):
        remap_unwrapped_subclass_arg_indices(VALUES, [0, position])


def test_with_and_without_metas() -> None:
    found = unwrap_tensor_subclasses(VALUES, append_symints=True)
    planned = unwrap_tensor_subclasses(VALUES, append_symints=True, subclass_metas=METAS)
    leaves, descs = unwrap_tensor_subclasses(
        VALUES, [words.PlainAOTInput(i) for i in range(4)], append_symints=True, subclass_metas=METAS
    )
    assert len(found) == 8 == len(descs) and identical(found, planned) and identical(found, leaves)


def test_with_metas_classes_are_checked() -> None:
    with pytest.raises(PlanError, match=r"^args\[0\]: planned as TwoTensor, got Tensor"):
        unwrap_tensor_subclasses([torch.ones(1), *VALUES[1:]], append_symints=True, subclass_metas=METAS)


def safe_metas(values: list[Any]) -> list[Any]:
    metas: list[Any] = torchs.create_subclass_meta(fakes_of(values, False))
    for meta in metas:
        if isinstance(meta, schemas.SubclassCreationMeta):
            meta.make_runtime_safe()
    return metas


def test_with_torchs_metas_too() -> None:
    metas = safe_metas(VALUES)
    absent, nested = pack({"first": torch.ones(2)}), pack({"first": torch.ones(2), "second": torch.ones(2)})
    wrong: list[tuple[Any, str]] = [
        ([torch.ones(1), *VALUES[1:]], r"^args\[0\]: planned as TwoTensor, got Tensor"),
        ([*VALUES[:1], two(), *VALUES[2:]], r"^args\[1\]: planned as Tensor, got TwoTensor"),
        ([*VALUES[:2], TwoTensor(torch.ones(2), torch.ones(2)), 4], r"^args\[2\].a: planned as TwoTensor, got Tensor"),
        (VALUES[:3], "^subclass_metas: there are 4 for 3 values"),
    ]
    for values, message in wrong:
        with pytest.raises(PlanError, match=message):
            runtime_unwrap_tensor_subclasses(values, append_symints=False, subclass_metas=metas)
    with pytest.raises(PlanError, match=r"planned with the inner tensors \['first'\], got \['first', 'second'\]"):
        runtime_unwrap_tensor_subclasses([nested], append_symints=False, subclass_metas=safe_metas([absent]))
    numbers: Any = [metas[0], 2, metas[2], 7]  # before torch 2.6, what is no wrapper is a number
    assert len(unwrap_tensor_subclasses(VALUES, append_symints=False, subclass_metas=numbers)) == 8


@pytest.mark.parametrize("values", [two(), torch.ones(2, 2), {"a": torch.ones(2)}, None, iter([])])
def test_what_is_no_list_is_refused(values: Any) -> None:
    for unwrap in (
        lambda: unwrap_tensor_subclasses(values, append_symints=True),
        lambda: unwrap_tensor_subclasses(values, append_symints=True, subclass_metas=METAS),
        lambda: unwrap_tensor_subclasses(values, [words.PlainAOTInput(0)], append_symints=True),
        lambda: unwrap_tensor_subclasses(values, is_joint_structure=False),
        lambda: runtime_unwrap_tensor_subclasses(values, append_symints=False),
        lambda: unwrap_tensor_subclasses_with_indices_to_original(values),
        lambda: remap_unwrapped_subclass_arg_indices(values, []),
    ):
        with pytest.raises(PlanError, match="^`wrapped_args` is .*, and not a list or tuple of values"):
            unwrap()


@pytest.mark.parametrize("wrong", [[1, 2, 3], ([1],), ([1], 2), two(), [two(), two()], {}])
def test_a_joint_structure_is_two_lists(wrong: Any) -> None:
    with pytest.raises(PlanError, match=r"two flat lists, `\(primals, tangents\)`; got "):
        unwrap_tensor_subclasses(wrong, is_joint_structure=True)


def test_which_convention_is_meant_must_be_said() -> None:
    with pytest.raises(PlanError, match="needs to know whether symbolic sizes have slots"):
        unwrap_tensor_subclasses(VALUES)
    with pytest.raises(PlanError, match="is given `is_joint_structure` and `append_symints`, which are of different"):
        unwrap_tensor_subclasses(VALUES, append_symints=True, is_joint_structure=False)
    with pytest.raises(PlanError, match="is given `is_joint_structure` and descriptors"):
        unwrap_tensor_subclasses(VALUES, [], is_joint_structure=False)
    with pytest.raises(PlanError, match="needs `subclass_metas`: at a call, sizes\\s+are numbers"):
        runtime_unwrap_tensor_subclasses(VALUES, append_symints=True)
    with pytest.raises(PlanError, match="wrapped_args_descs: there are 1 for 4 values"):
        unwrap_tensor_subclasses(VALUES, [words.PlainAOTInput(0)], append_symints=False)
    with pytest.raises(PlanError, match=r"wrapped_args_descs\[0\]: 'x' is no descriptor"):
        unwrap_tensor_subclasses([two()], ["x"], append_symints=False)


def test_slots_of_containers_and_absent_parts_are_described() -> None:
    value = Bag({"parts": [torch.ones(2), torch.ones(3)], "none": None, "named": {"k": torch.ones(4)}})
    leaves, descs = unwrap_tensor_subclasses([value], [PlainInput("x", 0)], append_symints=True)
    assert [len(leaf) for leaf in leaves] == [2, 3, 4]
    assert [str(desc) for desc in descs] == ["x.parts[0]", "x.parts[1]", "x.named['k']"]
