"""What each result of a traced function is said to be."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, mark_dynamic, trace_joint
from subclass_aot.engine.descriptors import OutputDescriptor
from subclass_aot.engine.outputs import (
    AliasOfLeaf,
    ComputedSymints,
    Constant,
    InputLeaf,
    Output,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
)


def outputs_of(function: Any, *args: Any) -> tuple[Output, ...]:
    return trace_joint(function, *args).signature.outputs


def leaf() -> torch.Tensor:
    return torch.rand(2, 3, requires_grad=True)


def two() -> TwoTensor:
    return TwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_()


@pytest.mark.parametrize("make", [leaf, two])
def test_what_is_computed_says_whether_autograd_goes_through_it(make: Any) -> None:
    through, detached = outputs_of(lambda x: (x * 2, x.detach() * 2), make())
    assert isinstance(through, Value) and isinstance(detached, Value)
    assert (through.requires_grad, detached.requires_grad) == (True, False)
    assert all(isinstance(part, OutputDescriptor) for part in through.leaves)
    assert len(through.leaves) == (2 if make is two else 1)


@pytest.mark.parametrize("make", [leaf, two])
def test_the_same_objects_are_named_by_position(make: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        made = x * y
        return y, made, made, x

    same, made, again, other = outputs_of(program, make(), make())
    assert (same, again, other) == (SameAsInput(1), SameAsOutput(1), SameAsInput(0)) and isinstance(made, Value)


@pytest.mark.parametrize("make", [leaf, two])
def test_a_view_of_an_input_can_be_made_again(make: Any) -> None:
    (view,) = outputs_of(lambda y, x: x[1:].t(), make(), make())
    x = make()
    assert isinstance(view, ViewOfInput) and view.value == 1 and view.requires_grad
    again = view.replay(x, *view.symints)
    assert again._base is x and again.shape == (3, 1)


def test_views_of_something_computed_are_made_of_a_result_or_of_a_base_of_their_own() -> None:
    def program(x: Any) -> Any:
        made, unseen = x * 2, x * 3
        return made, made[0], unseen[0], unseen[1:]

    trace = trace_joint(program, leaf())
    _, of_result, first, second = trace.signature.outputs
    assert isinstance(of_result, ViewOfBase) and isinstance(first, ViewOfBase) and isinstance(second, ViewOfBase)
    assert of_result.output == 0
    assert (first.output, second.output) == (None, None) and first.intermediate_base == second.intermediate_base == 0
    assert len(trace.signature.intermediate_bases) == 1
    base = torch.rand(2, 3)
    assert torch.equal(second.replay(base, *second.symints), base[1:])


def test_a_wrapper_may_hold_leaves_of_inputs_and_what_shares_memory_with_them() -> None:
    (found,) = outputs_of(lambda x, y: TwoTensor(y, y.view(3, 2).t()), torch.rand(2, 3), torch.rand(2, 3))
    assert isinstance(found, Value)
    whole, alias = found.leaves
    assert whole == InputLeaf(1)
    assert isinstance(alias, AliasOfLeaf) and alias.slot == 1 and alias.offset == 0
    assert (alias.spec.size, alias.spec.stride) == ((2, 3), (1, 2))


@functools.cache
def kept() -> torch.Tensor:
    """Where no trace looks."""
    return torch.ones(2)


def test_a_known_size_and_a_tensor_that_depends_on_no_input_are_constants() -> None:
    tensor = kept()
    size, found = outputs_of(lambda x: (x.shape, kept()), leaf())
    assert size == Constant(torch.Size([2, 3]))
    assert isinstance(found, Constant) and found.value is tensor


def test_a_size_that_the_call_knows_is_computed() -> None:
    x = torch.rand(4, 3)
    mark_dynamic(x, 0)
    size, number = outputs_of(lambda x: (x.shape, x.shape[0] * 2), x)
    assert isinstance(size, ComputedSymints) and isinstance(number, ComputedSymints)
    assert size.is_size and isinstance(size.parts[0], OutputDescriptor) and size.parts[1] == 3
    assert not number.is_size and len(number.parts) == 1
