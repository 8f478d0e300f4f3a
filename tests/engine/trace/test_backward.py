"""The second half of a trace: which gradients go out, and what else going backward did."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.outputs import InputLeaf
from subclass_aot.engine.trace.backward import Backward
from subclass_aot.errors import MutationError, TraceError
from tests.engine.trace.stages import backward_of
from tests.engine.trace.test_mutations import writes_in_backward


def leaf() -> torch.Tensor:
    return torch.rand(3, requires_grad=True)


def gradients_in(backward: Backward) -> dict[str, tuple[int, ...]]:
    """What has a gradient, with the tangents that it comes from."""
    return {str(desc): reach for desc, (_, reach) in backward.gradients.items()}


def test_without_tangents_nobody_goes_backward() -> None:
    recorder, backward = backward_of(lambda x: x * 2, torch.rand(3))
    assert backward.recorder is recorder and not backward.gradients and not backward.described_tangents


def test_gradients_of_inputs_and_of_leaves_that_the_function_makes() -> None:
    def program(x: Any, w: Any, unused: Any) -> Any:
        made = x.detach().requires_grad_()
        return made, made * 2, w * 3

    _, backward = backward_of(program, torch.rand(3), TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_(), leaf())
    tangents = [str(tangent.output) for tangent in backward.described_tangents]
    assert [tangents[i] for i in gradients_in(backward)["output[0]"]][-1] == "output[1]"
    assert [tangents[i] for i in gradients_in(backward)["args[1]"]] == ["output[2]"]
    assert set(gradients_in(backward)) == {"output[0]", "args[1]"}
    parts = [str(desc) for desc in backward.nodes if "args[1]" in str(desc)]
    assert parts == ["gradient of args[1].a", "gradient of args[1].b"]


def test_a_fork_records_it_and_forward_stays_as_it_is() -> None:
    recorder, backward = backward_of(lambda x: x.sin(), leaf())
    forward, both = recorder.in_order(), backward.recorder.in_order()
    assert {n.meta["partitioner_tag"] for n in forward} == {"is_forward"}
    assert [n.name for n in both if n.meta["partitioner_tag"] == "is_forward"] == [n.name for n in forward]
    added = [n for n in both if n.meta["partitioner_tag"] == "is_backward"]
    assert torch.ops.aten.cos.default in [n.target for n in added] and "tangents_1" in [n.name for n in added]


def test_a_gradient_of_a_jagged_tensor_has_the_structure_of_the_input() -> None:
    x = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(4, 3)], layout=torch.jagged, requires_grad=True)
    _, backward = backward_of(lambda x: x * 2, x)
    ((value, _),) = backward.gradients.values()
    assert any(isinstance(source, InputLeaf) for source in value.leaves) and len(backward.nodes) == 1


def test_what_it_writes() -> None:
    _, backward = backward_of(writes_in_backward, leaf(), torch.zeros(3))
    assert backward.mutated_leaves == (1,) and set(gradients_in(backward)) == {"args[0]"}

    def both(x: Any, count: Any, other: Any) -> Any:
        other.mul_(2)
        return writes_in_backward(x, count)

    base = torch.zeros(4)
    with pytest.raises(MutationError, match=r"args\[1\] is written while gradients are computed"):
        backward_of(both, leaf(), base[:3], base[1:])


def test_a_tangent_that_must_not_come_in_has_its_reason() -> None:
    def written(x: Any, w: Any) -> Any:
        lost = (x * 1).exp()
        lost.mul_(2)
        return lost, w * 2

    _, backward = backward_of(written, leaf(), leaf())
    assert [tangent.error is None for tangent in backward.described_tangents] == [False, True]
    assert "modified by an inplace operation" in backward.errors[0] and set(gradients_in(backward)) == {"args[1]"}


def test_a_function_that_went_backward_itself() -> None:
    def one(x: Any) -> Any:
        middle = x.exp()
        torch.autograd.grad(middle.sum(), x)
        return middle

    def several(x: Any) -> Any:
        return one(x), x * 2

    with pytest.raises(TraceError, match="The function goes backward itself"):
        backward_of(several, leaf())
    recorder, backward = backward_of(one, leaf())
    assert backward.recorder is recorder and not backward.gradients


class Picks(torch.autograd.Function):
    """The identity, whose gradient is picked from a table."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * torch.tensor([1.0, 2.0])[torch.tensor([0, 1, 1])] * TABLE.exp()


TABLE = torch.tensor([0.0, 0.5, 1.0])


def test_tensors_that_only_backward_makes_or_meets() -> None:
    found = []
    for function in (Picks.apply, aot_compile(Picks.apply)):
        x = torch.ones(3, requires_grad=True)
        for _ in range(2):
            function(x).sum().backward()
        assert type(x.grad) is torch.Tensor
        found.append(x.grad)
    torch.testing.assert_close(*found)
