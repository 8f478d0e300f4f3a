"""The functions under AOTAutograd's names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aotautograd
from subclass_aot.aotautograd import (
    FunctionMeta,
    create_metadata_for_subclass,
    requires_subclass_dispatch,
    unwrap_tensor_subclasses,
    wrap_tensor_subclasses,
    wrap_tensor_subclasses_maybe_joint,
)
from subclass_aot.errors import LeafCountError, PlanError
from subclass_aot.flatten import create_subclass_meta


def two(value: float = 1.0) -> TwoTensor:
    return TwoTensor(torch.full((2,), value), torch.full((2,), -value))


VALUES = [two(1), torch.ones(3), TwoTensor(two(2), two(3)), 4]
METAS = create_subclass_meta(VALUES)
PLAIN = create_subclass_meta([torch.ones(1)])


def test_with_and_without_metas() -> None:
    found = unwrap_tensor_subclasses(VALUES, append_symints=True)
    planned = unwrap_tensor_subclasses(VALUES, append_symints=True, subclass_metas=METAS)
    assert len(found) == 8
    assert all(x is y for x, y in zip(found, planned, strict=True))


def test_with_metas_classes_are_checked() -> None:
    with pytest.raises(PlanError, match=r"^args\[0\]: planned as TwoTensor, got Tensor"):
        unwrap_tensor_subclasses([torch.ones(1), *VALUES[1:]], append_symints=True, subclass_metas=METAS)


def test_activations_follow_and_stay_dense() -> None:
    leaves = unwrap_tensor_subclasses(VALUES, append_symints=True)
    saved = [torch.ones(5), torch.ones(6)]
    for sequence in (list, tuple):
        outputs = wrap_tensor_subclasses(
            sequence(leaves + saved),
            subclass_metas=METAS,
            num_fw_outs_saved_for_bw=2,
            included_subclass_symints=True,
        )
        assert type(outputs) is tuple
        assert [type(x) for x in outputs[:4]] == [TwoTensor, torch.Tensor, TwoTensor, int]
        assert outputs[4] is saved[0] and outputs[5] is saved[1]
    with pytest.raises(LeafCountError, match="planned for 10 leaves, got 8"):
        wrap_tensor_subclasses(leaves, subclass_metas=METAS, num_fw_outs_saved_for_bw=2, included_subclass_symints=True)


def test_leaves_of_plain_values_may_be_anything() -> None:
    assert wrap_tensor_subclasses([None], subclass_metas=PLAIN) == (None,)  # a gradient that is not there


def test_inference_and_joint() -> None:
    tangents = create_subclass_meta([VALUES[2]], count_symints=False)
    meta = FunctionMeta(METAS, subclass_tangent_meta=tangents)
    leaves = unwrap_tensor_subclasses(VALUES, append_symints=True)
    grads = [torch.rand(2) for _ in range(4)]
    inference = wrap_tensor_subclasses_maybe_joint(leaves, is_joint_structure=False, meta=meta)
    assert [type(x) for x in inference] == [TwoTensor, torch.Tensor, TwoTensor, int]
    primals, (tangent,) = wrap_tensor_subclasses_maybe_joint((leaves, grads), is_joint_structure=True, meta=meta)
    assert [type(x) for x in primals] == [type(x) for x in inference]
    assert tangent.b.a is grads[2]


@pytest.mark.parametrize("wrong", [[1, 2, 3], ([1],), ([1], 2)])
def test_a_joint_structure_is_two_lists(wrong: Any) -> None:
    with pytest.raises(PlanError, match=r"two flat lists, `\(primals, tangents\)`; got "):
        wrap_tensor_subclasses_maybe_joint(wrong, is_joint_structure=True, meta=FunctionMeta(()))


def test_dispatch_is_required_by_an_argument_or_an_output() -> None:
    dense = FunctionMeta((), subclass_fw_graph_out_meta=PLAIN)
    assert not requires_subclass_dispatch([torch.ones(1), {"a": [None, 3]}], dense)
    assert requires_subclass_dispatch([torch.ones(1), {"a": [None, two()]}], dense)
    assert requires_subclass_dispatch([], FunctionMeta((), subclass_fw_graph_out_meta=METAS))


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
    assert [m.unwrapped_idx for m in dense.subclass_inp_meta] == list(range(8))  # type: ignore[union-attr]
    assert (len(dense.subclass_fw_graph_out_meta), len(dense.subclass_tangent_meta)) == (5, 2)
    assert not requires_subclass_dispatch([], dense)
    again = create_metadata_for_subclass(dense)
    assert again == dense


def test_code_is_generated_once_for_each_list_of_metas(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    functions = aotautograd._Generated(lambda metas: made.append(len(metas)) or len, capacity=2)
    other = create_subclass_meta(VALUES)
    for metas in (METAS, list(METAS), tuple(METAS), other, METAS):
        functions.get(metas)
    assert made == [4, 4]
    functions.get(PLAIN)
    functions.get(METAS)  # the oldest has left
    assert made == [4, 4, 1, 4]
