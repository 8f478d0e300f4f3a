"""What is known of a function, by wrappers and by leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import subclass_utils as torchs
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from subclass_aot.doors.aotautograd import (
    FunctionMeta,
    compute_inner_mutated_inp_indices_from_subclass_meta,
    create_metadata_for_subclass,
    create_subclass_meta,
    requires_subclass_dispatch,
    unwrap_tensor_subclasses,
)
from subclass_aot.errors import PlanError
from tests.doors.aotautograd.lists import VALUES as LISTS
from tests.doors.aotautograd.lists import fakes_of, input_info, output_info, two, view_and_mutation_meta

VALUES: list[Any] = [two(1), torch.ones(3), TwoTensor(two(2), two(3)), 4]
METAS = create_subclass_meta(VALUES)
PLAIN = create_subclass_meta([torch.ones(1)])


def test_dispatch_is_required_by_an_argument_or_an_output() -> None:
    dense = FunctionMeta((), subclass_fw_graph_out_meta=PLAIN)
    assert not requires_subclass_dispatch([torch.ones(1), {"a": [None, 3]}], dense)
    assert requires_subclass_dispatch([torch.ones(1), {"a": [None, two()]}], dense)
    assert requires_subclass_dispatch([], FunctionMeta((), subclass_fw_graph_out_meta=METAS))


@given(LISTS, LISTS)
def test_dispatch_is_required_where_torch_says_so(values: list[Any], outputs: list[Any]) -> None:
    fakes = fakes_of(outputs, False)
    theirs = view_and_mutation_meta([], torchs.create_subclass_meta(fakes))
    ours = FunctionMeta((), subclass_fw_graph_out_meta=create_subclass_meta(fakes))
    expected = torchs.requires_subclass_dispatch((values, {}), theirs)  # type: ignore[arg-type]
    assert requires_subclass_dispatch(values, theirs) == requires_subclass_dispatch(values, ours) == expected


def test_torchs_metadata_of_outputs_counts() -> None:
    meta = view_and_mutation_meta([], torchs.create_subclass_meta(fakes_of([two()], False)))
    assert requires_subclass_dispatch([torch.ones(1)], meta)


@given(LISTS, st.booleans(), st.sets(st.integers(0, 4)))
def test_mutated_positions_are_torchs(values: list[Any], symbolic: bool, mutated: set[int]) -> None:
    fakes = fakes_of(values, symbolic)
    theirs, ours = torchs.create_subclass_meta(fakes), create_subclass_meta(fakes)
    infos = [input_info(i in mutated) for i in range(len(fakes))]
    outer = view_and_mutation_meta(theirs, input_info=infos)
    per_leaf = [info for info, meta in zip(infos, theirs, strict=True) for _ in range(getattr(meta, "arg_count", 1))]
    inner = view_and_mutation_meta([], input_info=per_leaf)
    expected = torchs.compute_inner_mutated_inp_indices_from_subclass_meta(outer, inner)
    positions = [i for i in range(len(fakes)) if i in mutated]
    for meta in (outer, FunctionMeta(ours, mutated_inp_runtime_indices=positions)):
        assert compute_inner_mutated_inp_indices_from_subclass_meta(meta, inner) == expected
        assert compute_inner_mutated_inp_indices_from_subclass_meta(meta) == (expected if fakes else [])


@given(LISTS, LISTS, LISTS, st.sets(st.integers(0, 4)), st.integers(0, 2))
def test_metadata_of_the_leaves_may_be_torchs(
    inputs: list[Any], outputs: list[Any], tangents: list[Any], mutated: set[int], bases: int
) -> None:
    given_outputs, given_tangents = fakes_of(outputs, False), fakes_of(tangents, False)
    fakes = fakes_of(inputs, False)
    count = sum(i in mutated for i in range(len(fakes)))
    user = max(len(outputs) - count - bases, 0)
    bases = min(bases, len(outputs) - user)
    from torch._functorch._aot_autograd.descriptors import DummyAOTInput

    meta = view_and_mutation_meta(
        torchs.create_subclass_meta(fakes),
        torchs.create_subclass_meta(given_outputs),
        torchs.create_subclass_meta(given_tangents, count_symints=False),
        input_info=[input_info(i in mutated) for i in range(len(fakes))],
        output_info=[output_info(bool(i % 2)) for i in range(user)],
        num_intermediate_bases=bases,
        traced_tangents=given_tangents,
        traced_tangents_descs=[DummyAOTInput(i) for i in range(len(given_tangents))],
    )
    dense = create_metadata_for_subclass(meta)
    assert type(dense) is type(meta)
    flat = unwrap_tensor_subclasses(fakes, append_symints=True)
    assert len(dense.input_info) == len(dense.subclass_inp_meta) == len(flat)
    assert [m.unwrapped_idx for m in dense.subclass_inp_meta] == list(range(len(flat)))
    assert dense.mutated_inp_runtime_indices == compute_inner_mutated_inp_indices_from_subclass_meta(meta)
    flat = unwrap_tensor_subclasses(given_outputs, append_symints=True)
    own = unwrap_tensor_subclasses(
        given_outputs[len(outputs) - bases - user : len(outputs) - bases], append_symints=True
    )
    assert (len(dense.subclass_fw_graph_out_meta), len(dense.output_info)) == (len(flat), len(own))
    assert dense.num_intermediate_bases == len(
        unwrap_tensor_subclasses(given_outputs[len(outputs) - bases :], append_symints=True)
    )
    flat = unwrap_tensor_subclasses(given_tangents, append_symints=False)
    assert len(dense.traced_tangents) == len(dense.traced_tangents_descs) == len(dense.subclass_tangent_meta)
    assert all(a is b for a, b in zip(dense.traced_tangents, flat, strict=True) if isinstance(b, torch.Tensor))
    assert not requires_subclass_dispatch([], dense)


def test_metadata_of_the_leaves() -> None:
    meta = FunctionMeta(
        METAS,
        subclass_fw_graph_out_meta=create_subclass_meta([two(), torch.ones(1), two()]),
        subclass_tangent_meta=create_subclass_meta([two()], count_symints=False),
        input_info="abcd",
        output_info="yz",
        mutated_inp_runtime_indices=[0],
    )
    dense = create_metadata_for_subclass(meta)
    assert "".join(dense.input_info) == "aabccccd"
    assert "".join(dense.output_info) == "yzz"
    assert dense.mutated_inp_runtime_indices == [0, 1]
    assert [m.unwrapped_idx for m in dense.subclass_inp_meta] == list(range(8))
    assert (len(dense.subclass_fw_graph_out_meta), len(dense.subclass_tangent_meta)) == (5, 2)
    assert not requires_subclass_dispatch([], dense)
    again = create_metadata_for_subclass(dense)
    assert again == dense


@pytest.mark.parametrize("position", [4, 7, -1, None, 1.0, True])
def test_a_position_is_that_of_an_input(position: Any) -> None:
    meta = FunctionMeta(METAS, mutated_inp_runtime_indices=[0, position])
    for function in (compute_inner_mutated_inp_indices_from_subclass_meta, create_metadata_for_subclass):
        with pytest.raises(PlanError, match=f"^mutated_inp_runtime_indices: {position!r} is the position of no input"):
            function(meta)


@given(LISTS.filter(len), st.booleans(), st.data())
def test_what_is_said_of_a_leaf_must_agree_where_it_is_the_value(
    values: list[Any], symbolic: bool, data: st.DataObject
) -> None:
    """One place is changed: it is refused if the value is one leaf itself, and torch refuses it, too."""
    fakes = fakes_of(values, symbolic)
    theirs, ours = torchs.create_subclass_meta(fakes), create_subclass_meta(fakes)
    infos = [input_info(bool(i % 2)) for i in range(len(fakes))]  # that of a neighbor is another, or it is the same
    if data.draw(st.booleans(), "all alike"):
        infos = infos[:1] * len(fakes)
    outers = [i for i, meta in enumerate(ours) for _ in range(meta.arg_count)]
    inner_infos = [infos[i] for i in outers]
    compute = compute_inner_mutated_inp_indices_from_subclass_meta
    outer = view_and_mutation_meta(theirs, input_info=infos)
    expected = compute(outer, view_and_mutation_meta([], input_info=inner_infos))
    if not outers:
        return
    place = data.draw(st.integers(0, len(outers) - 1), "place")
    others = [
        info for info in (input_info(True), input_info(False), input_info(True, True)) if info != inner_infos[place]
    ]
    inner_infos[place] = data.draw(st.sampled_from(others), "its info")
    inner = view_and_mutation_meta([], input_info=inner_infos)
    for meta in (
        outer,
        FunctionMeta(ours, input_info=infos, mutated_inp_runtime_indices=outer.mutated_inp_runtime_indices),
    ):
        if is_traceable_wrapper_subclass(fakes[outers[place]]):
            assert compute(meta, inner) == expected
            continue
        with pytest.raises(PlanError, match=rf"^inner_metadata.input_info\[{place}\] is .*\n.*args\[{outers[place]}\]"):
            compute(meta, inner)
    if not is_traceable_wrapper_subclass(fakes[outers[place]]):
        with pytest.raises(AssertionError):
            torchs.compute_inner_mutated_inp_indices_from_subclass_meta(outer, inner)


def test_what_is_said_of_inputs_must_agree() -> None:
    compute = compute_inner_mutated_inp_indices_from_subclass_meta
    with pytest.raises(PlanError, match="^fw_metadata.input_info: there are 3 for 4 inputs"):
        compute(FunctionMeta(METAS, input_info="abc"))
    outer = FunctionMeta(METAS, input_info="abcd")
    with pytest.raises(PlanError, match="^inner_metadata.input_info: there are 4 for 8 leaves"):
        compute(outer, outer)
    with pytest.raises(PlanError, match=r"(?s)^inner_metadata.input_info\[2\] is 'x',.*of args\[1\], .*'b'"):
        compute(outer, FunctionMeta((), input_info="aaxccccd"))
    assert compute(outer, FunctionMeta((), input_info="??b????d")) == []
    with pytest.raises(PlanError, match="^output_info: there are 2 for 1 values"):
        create_metadata_for_subclass(FunctionMeta((), subclass_fw_graph_out_meta=PLAIN, output_info="ab"))
    assert compute(FunctionMeta(()), FunctionMeta((), mutated_inp_runtime_indices=[3])) == [3]
