"""What a recorded graph says of its nodes, and what several recorders of one graph know of each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from subclass_aot import MetaTensor, Spec, trace_joint
from subclass_aot.errors import TraceError, UnknownTensorError
from tests.constants import out_of_sight
from tests.engine.graph.recording import finished, gone_backward, recorded


def nodes_of(trace: Any, op: str) -> list[Any]:
    return [n for n in trace.graph_module.graph.nodes if n.op == op]


def test_tensors_without_data_of_an_earlier_trace() -> None:
    place = out_of_sight(MetaTensor(torch.ones(3)))
    with pytest.raises(TraceError, match="belongs to no running trace, or to another one") as caught:
        trace_joint(lambda x: x + place.kept, torch.ones(3))
    assert "lambda x: x + place.kept" in str(caught.value)


def test_nodes_say_what_and_where_they_are() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin()  # deep

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = inner(x) * y  # product
        return z.max(1)  # largest

    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(3, dtype=torch.float64)
    trace = trace_joint(program, x, y)
    for node in trace.graph_module.graph.nodes:
        if node.op == "output":
            continue
        assert node.meta["partitioner_tag"] in ("is_forward", "is_backward")
        assert isinstance(node.meta["stack_trace"], str)
        val = node.meta["val"]
        if isinstance(val, tuple):
            assert all(type(v) is FakeTensor for v in val)
        else:
            spec = node.meta["spec"]
            assert type(val) is FakeTensor and type(spec) is Spec
            assert (val.shape, val.stride(), val.dtype) == (spec.size, spec.stride, spec.dtype)
    forward, backward = {}, {}
    for node in nodes_of(trace, "call_function"):
        (forward if node.meta["partitioner_tag"] == "is_forward" else backward)[node.name] = node.meta["stack_trace"]
    assert forward["sin"].splitlines()[-1].endswith("return x.sin()  # deep")
    assert "in program" in forward["sin"] and "in inner" in forward["sin"]
    assert forward["mul"].splitlines()[-1].endswith("# product")
    assert any(text.endswith("# largest") for text in forward.values())
    assert backward["cos"].splitlines()[-1].endswith("# deep"), "the forward line that this gradient belongs to"
    named = {text.splitlines()[-1].rsplit("# ")[-1] for text in backward.values() if text}
    assert named == {"deep", "product", "largest"}


def test_several_backwards_of_one_forward_do_not_see_each_other() -> None:
    forward, y = recorded(lambda x: x.sin() * x)
    start = [("primals_1", []), ("tangents_1", []), ("sin", ["primals_1"]), ("mul", ["sin", "primals_1"])]
    first, one = gone_backward(forward, lambda tangent: tangent.cos() + y)
    second, other = gone_backward(forward, lambda tangent: tangent.exp() + tangent)
    assert finished(first, one) == [*start, ("cos", ["tangents_1"]), ("add", ["cos", "mul"])]
    assert finished(second, other) == [*start[:2], ("exp", ["tangents_1"]), ("add_1", ["exp", "tangents_1"])]
    assert finished(forward, y) == [start[0], *start[2:]]
    assert finished(first, one) == [*start, ("cos", ["tangents_1"]), ("add", ["cos", "mul"])], "it stays as it is"
    with pytest.raises(UnknownTensorError), second:
        one.neg()
    with pytest.raises(UnknownTensorError), forward:
        one.neg()
