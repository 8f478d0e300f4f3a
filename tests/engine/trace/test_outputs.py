"""What each result is said to be, beyond `tests/engine/test_outputs.py`, and what gradients of it look like."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Spec, TwoTensor, aot_compile, trace_joint
from subclass_aot.base._torch.autograd import view_rules
from subclass_aot.engine.descriptors import Inner, InnerSize, InnerStride, PlainOutput
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.outputs import AliasOfLeaf, InputLeaf, Value, ViewOfInput
from subclass_aot.engine.trace.outputs import OutputReader, is_traced, packed_tangent, part_of, spec_of_tangent
from subclass_aot.errors import InnerTensorError, MutationError, TraceError
from subclass_aot.kit.flatten import Slot
from subclass_aot.testing import check_compiled, sharing
from tests.engine.trace.stages import begun


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


def no_grad_view(x: Any) -> Any:
    y = x * 3
    with torch.no_grad():
        return y.sum(), y.view(-1)


def no_grad_view_alone(x: Any) -> Any:
    y = x * 3
    with torch.no_grad():
        return y.t()


def no_grad_view_beside(x: Any) -> Any:
    y = (x * 3).view(-1)
    with torch.no_grad():
        part = y[2:]
    return part, y.exp()


def no_grad_view_with_base(x: Any) -> Any:
    y = x * 3
    with torch.no_grad():
        return y, y[0]


def no_grad_views(x: Any) -> Any:
    y = x * 3
    with torch.no_grad():
        first, second = y.unbind()
    return first, second, y.sum()


def beside_detached(x: Any) -> Any:
    y = x * 2
    return y.view(-1), y.detach()


def beside_part_of_detached(x: Any) -> Any:
    y = x * 2
    return y.detach()[0], y.t(), y.sum()


def beside_data(x: Any) -> Any:
    y = x * 2
    return y.data, y.view(3, 2)


def beside_views_of_detached(x: Any) -> Any:
    y = x * 2
    detached = y.detach()
    return detached[0], detached[1], y.view(3, 2)


def beside_a_detached_view(x: Any) -> Any:
    y = x * 2
    return y[0], y.t().detach()


OF_INTERMEDIATES = (
    *(no_grad_view, no_grad_view_alone, no_grad_view_beside, no_grad_view_with_base, no_grad_views),
    *(beside_detached, beside_part_of_detached, beside_data, beside_views_of_detached, beside_a_detached_view),
)


def of_results(found: Any) -> list[Any]:
    results = found if isinstance(found, tuple) else (found,)
    views = [r._is_view() for r in results]
    rules = [view_rules(r) if r._is_view() else None for r in results]
    return [[(r.requires_grad, r.is_leaf, r._version) for r in results], views, rules, sharing(results)]


@pytest.mark.parametrize("program", OF_INTERMEDIATES)
@pytest.mark.parametrize("make", [lambda: torch.rand(2, 3), lambda: two(2, 3)])
@pytest.mark.parametrize("grad", [True, False])
def test_views_of_what_is_no_result(program: Any, make: Any, grad: bool) -> None:
    """What is a view, and requires grad, is said as eager mode says it: of one view alone it need not be a view."""
    options: Any = {"fw_compiler": "eager"}
    for compiled in (aot_compile(program, **options), aot_compile(program, dynamic=True, **options)):
        x, other = make().requires_grad_(grad), make().requires_grad_(grad)
        for each in (x, other):
            expected, got = of_results(program(each)), of_results(compiled(each))
            assert got == expected if grad else (got[0], got[-1]) == (expected[0], expected[-1])
    check_compiled(program, [x], fw_compiler="eager", tries=0)


@pytest.mark.parametrize("program", [no_grad_view, beside_detached])
@pytest.mark.usefixtures("fresh_dynamo")
def test_views_of_what_is_no_result_behind_dynamo(program: Any) -> None:
    x = torch.rand(2, 3, requires_grad=True)
    assert of_results(torch.compile(program, backend="subclass_aot")(x)) == of_results(program(x))
