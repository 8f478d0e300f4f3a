"""What a signature says of a call, beside what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import mark_static_address, trace_joint
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.tensors import TwoTensor


def two() -> TwoTensor:
    return TwoTensor(torch.rand(2), torch.rand(2))


def test_graph_slots_are_the_graph_inputs_of_forward() -> None:
    trace = trace_joint(lambda w, x: w * x, two(), torch.rand(2, requires_grad=True))
    inputs = [n for n in trace.graph_module.graph.find_nodes(op="placeholder") if n.name.startswith("primals")]
    assert len(trace.signature.graph_slots) == len(inputs) == 3


def test_static_inputs_are_what_a_module_holds_and_what_is_marked() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(two())

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return self.weight * x * y

    trace = trace_joint(Layer(), torch.rand(2), mark_static_address(torch.rand(2)))
    inputs = trace.graph_module.graph.find_nodes(op="placeholder")
    static = [str(descriptor_of(inputs[i])) for i in trace.signature.static_input_indices]
    assert static == ["self.weight.a", "self.weight.b", "args[1]"]
    slots = [trace.signature.graph_slots[i] for i in trace.signature.static_input_indices]
    assert [trace.signature.path_of(slot) for slot in slots] == static


@pytest.mark.parametrize(
    "program, writes",
    [
        (lambda x: x * 2, False),
        (lambda x: x.mul_(2), True),
        (lambda x: x.unsqueeze_(0), False),
        (lambda x: x.requires_grad_(), False),
    ],
    ids=["pure", "data", "metadata", "requires grad"],
)
def test_whether_data_is_written(program: Callable[[Any], Any], writes: bool) -> None:
    assert trace_joint(program, torch.rand(2)).signature.mutations.mutates_data is writes


def test_an_input_has_the_gradient_that_backward_gives_it() -> None:
    x, unused = torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)
    signature = trace_joint(lambda x, y, unused: (x * y, x.sin()), x, torch.rand(2), unused).signature
    assert [given.gradient is not None for given in signature.inputs] == [True, False, False]
    assert [given.reach for given in signature.inputs] == [(0, 1), (), ()]
    assert [str(tangent.output) for tangent in signature.tangents] == ["output[0]", "output[1]"]
