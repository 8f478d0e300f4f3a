"""Which inputs stay in place: what modules bring, and what was marked; in values and in leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, mark_static_address, trace_joint
from subclass_aot.engine.call.static_inputs import is_marked
from subclass_aot.engine.descriptors import descriptor_of


def two() -> Any:
    return TwoTensor(torch.rand(2, 2), torch.rand(2, 2))


def static_names(trace: Any) -> list[str]:
    inputs = [n for n in trace.graph_module.graph.nodes if n.op == "placeholder"]
    return [str(descriptor_of(inputs[i])) for i in trace.signature.static_input_indices]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(Int8Weight.from_float(torch.rand(2, 2)), requires_grad=False)
        self.bias = nn.Parameter(torch.rand(2))
        self.register_buffer("offset", torch.rand(2))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight, self.bias) + self.offset


def test_what_a_module_brings_is_static() -> None:
    names = ["self.weight.codes", "self.weight.scale", "self.bias", "self.offset"]
    trace = trace_joint(Layer(), torch.rand(1, 2))
    assert static_names(trace) == names
    assert [given.path for given in trace.signature.inputs if not given.is_static] == ["args[0]"]
    trace = trace_joint(lambda layer, x: layer(x), Layer(), torch.rand(1, 2))
    assert [name.replace("args[0]", "self") for name in static_names(trace)] == names


@pytest.mark.parametrize("mark", [mark_static_address, torch._dynamo.mark_static_address])
def test_what_is_marked_is_static(mark: Any) -> None:
    x, w, y = two(), two(), torch.rand(2, 2)
    mark(w)
    mark(y)
    assert [is_marked(t) for t in (x, w, y)] == [False, True, True]
    trace = trace_joint(lambda x, w, y: x * w + y, x, w, y)
    assert static_names(trace) == ["args[1].a", "args[1].b", "args[2]"]


def test_only_leaves_that_are_graph_inputs_count() -> None:
    """A nested wrapper has all its leaves; positions are those of the graph."""
    w = mark_static_address(TwoTensor(two(), torch.rand(2, 2)))
    trace = trace_joint(lambda n, x, w: w * n, 2, torch.rand(2, 2), w)
    assert trace.signature.static_input_indices == (1, 2, 3)
    assert trace_joint(lambda x: x * 2, two()).signature.static_input_indices == ()


def test_the_mark_is_returned_and_torch_knows_it() -> None:
    x = torch.rand(2)
    assert mark_static_address(x) is x
    other = torch.rand(2)
    torch._dynamo.mark_static_address(other)
    assert vars(x) == vars(other)
