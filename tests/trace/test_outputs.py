"""What each result is said to be, beyond `tests/test_outputs.py`, and what gradients of it look like."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Spec, TwoTensor, aot_compile, trace_joint
from subclass_aot.descriptors import Inner, InnerSize, InnerStride, PlainOutput
from subclass_aot.errors import InnerTensorError, MutationError, TraceError
from subclass_aot.flatten import Slot
from subclass_aot.graph import Recorder
from subclass_aot.outputs import AliasOfLeaf, InputLeaf, Value, ViewOfInput
from subclass_aot.trace.outputs import OutputReader, is_traced, packed_tangent, part_of, spec_of_tangent
from tests.trace.stages import begun


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def reader_of(recorder: Recorder, inputs: Any, **options: Any) -> OutputReader:
    return OutputReader(inputs.seen, inputs.leaves, recorder, **options)


def test_the_name_of_a_part_is_made_of_the_way_to_it() -> None:
    whole = PlainOutput(1)
    weight = Inner(whole, "weight")
    assert part_of(whole, Slot(0, 0, (), "leaf")) is whole
    assert part_of(whole, Slot(0, 0, (".weight", ".codes"), "leaf")) == Inner(weight, "codes")
    assert part_of(whole, Slot(0, 0, (".weight",), "size", 1)) == InnerSize(weight, 1)
    assert part_of(whole, Slot(0, 0, (".weight",), "stride", 0)) == InnerStride(weight, 0)


def test_a_new_value_is_returned_whole_even_what_an_input_has_already() -> None:
    with begun(lambda *_: None, two(3), torch.rand(3)) as (recorder, _, inputs):
        reader = reader_of(recorder, inputs)
        wrapper, dense = inputs.traced
        mixed = TwoTensor(dense, wrapper.b * 2)
        (read,) = reader.read([mixed])
        assert isinstance(read, Value) and read.leaves[0] == InputLeaf(2)
        assert list(reader.computed) == [Inner(PlainOutput(0), "b")]
        desc = PlainOutput(7)
        value = reader.computed_value(mixed, desc)
        assert value.leaves == (Inner(desc, "a"), Inner(desc, "b")) and reader.computed[Inner(desc, "a")] is dense


def test_what_autograd_sees_nothing_of_shares_memory_leaf_by_leaf() -> None:
    with begun(lambda *_: None, torch.rand(2, 3)) as (recorder, _, inputs):
        view = inputs.traced[0][1]
        (seen,) = reader_of(recorder, inputs).read([view])
        (unseen,) = reader_of(recorder, inputs, autograd_views=False).read([view])
        assert isinstance(seen, ViewOfInput) and seen.value == 0
        assert isinstance(unseen, Value) and isinstance(unseen.leaves[0], AliasOfLeaf)
        assert (unseen.leaves[0].slot, unseen.leaves[0].offset) == (0, 3)


def test_a_view_of_a_wrapper_that_is_turned_is_refused() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        view = y[0]
        y.t_()
        return view, y

    with pytest.raises(MutationError, match="the view cannot be regenerated from another tensor"):
        trace_joint(program, two(3, 4))


def test_a_ragged_size_is_refused() -> None:
    x = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(4, 3)], layout=torch.jagged)
    for program in (lambda x: x.shape[1], lambda x: x.shape):
        with pytest.raises(TraceError, match="the size of a ragged dimension"):
            trace_joint(program, x)


def test_what_belongs_to_a_trace() -> None:
    with begun(lambda *_: None, torch.rand(3)) as (_, _, inputs):
        assert is_traced(inputs.traced[0]) and is_traced(TwoTensor(inputs.traced[0], inputs.traced[0]))
    assert not is_traced(torch.rand(3)) and not is_traced(two(3))


@pytest.mark.parametrize(
    "tensor, stride",
    [
        (torch.rand(2, 3), (3, 1)),
        (torch.rand(3, 2).t(), (1, 2)),
        (torch.rand(1, 3).expand(2, 3), (3, 1)),
        (torch.rand(4, 6)[::2, ::2], (3, 1)),
        (torch.rand(2, 2).t()[:1], (2, 1)),
    ],
    ids=["dense", "transposed", "expanded", "with gaps", "a row of columns"],
)
def test_gradients_are_expected_with_dense_strides(tensor: torch.Tensor, stride: tuple[int, ...]) -> None:
    spec = spec_of_tangent(Spec.of(tensor))
    assert (spec.size, spec.stride, spec.offset, spec.dtype) == (tuple(tensor.shape), stride, 0, tensor.dtype)
    assert spec_of_tangent(spec).stride == stride
    with begun(lambda *_: None, tensor, TwoTensor(tensor, tensor)) as (_, _, inputs):
        dense, wrapper = map(packed_tangent, inputs.traced)
        assert dense.stride() == wrapper.stride() == wrapper.a.stride() == wrapper.b.stride() == stride


def test_what_is_dense_already_stays_the_same_object() -> None:
    with begun(lambda *_: None, two(3)) as (_, _, inputs):
        assert packed_tangent(inputs.traced[0]) is inputs.traced[0]


def test_an_inner_tensor_that_began_to_require_grad_is_refused_by_its_name() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = TwoTensor(x, x)
        x.add_(y)
        return made

    with pytest.raises(InnerTensorError, match=r"^output\[0\].a: this inner tensor of a TwoTensor requires grad"):
        aot_compile(program)(torch.ones(3), torch.ones(3, requires_grad=True))
