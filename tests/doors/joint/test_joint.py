"""`trace_joint`: what a pass finds in a joint graph, and how; with torch's own helpers, too."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd import fx_utils
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy

from subclass_aot import Int8Weight, MetaTensor, TwoTensor, compile_joint, mark_dynamic, quantize_, trace_joint
from subclass_aot.errors import TraceError
from subclass_aot.testing import difference


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.words(ids))


def test_what_is_not_there_is_named_with_what_is_near() -> None:
    joint = trace_joint(model(), torch.rand(3, 4))
    with pytest.raises(KeyError, match=r"no input of the name '0.weigth'.\n  Near:   0.weight") as error:
        joint["0.weigth"]
    assert str(error.value).count("0.weight") == 1
    with pytest.raises(KeyError, match="Near:   3.weight, 3.bias"):
        joint["3"]


def test_a_tied_parameter_has_the_first_of_its_names_and_is_found_by_each() -> None:
    module, ids = Tied(), torch.arange(4)
    joint = trace_joint(module, ids)
    with contextlib.ExitStack() as stack:
        torchs = aot_export_joint_with_descriptors(stack, module, (ids,)).graph_module.graph
        theirs = fx_utils.get_named_param_nodes(torchs)
    assert list(joint.parameters) == [name for name, _ in module.named_parameters()] == ["words.weight"]
    assert list(theirs) == ["words.weight", "head.weight"]  # an input for each name, and parts of the gradient
    assert [given.node for given in joint["head.weight"]] == [given.node for given in joint["words.weight"]]
    assert [out.name for out in joint.gradients_of("head.weight")] == ["gradient of words.weight"]


HELPERS = [
    "get_named_param_nodes",
    "get_named_buffer_nodes",
    "get_param_nodes",
    "get_buffer_nodes",
    "get_param_and_grad_nodes",
    "get_plain_input_and_grad_nodes",
    "get_all_input_and_grad_nodes",
    "get_plain_output_and_tangent_nodes",
    "get_all_output_and_tangent_nodes",
]


@pytest.mark.parametrize("helper", HELPERS)
def test_helpers_of_torch_find_the_same_as_in_its_own_graph(helper: str) -> None:
    x = torch.rand(3, 4, requires_grad=True)
    with contextlib.ExitStack() as stack:
        theirs = aot_export_joint_with_descriptors(stack, model(), (x,)).graph_module.graph
        expected = getattr(fx_utils, helper)(theirs)
    found = getattr(fx_utils, helper)(trace_joint(model(), x).graph_module.graph)

    def without_nodes(answer: Any) -> Any:
        if isinstance(answer, list):
            return len(answer)
        return {key: [part is None for part in x] if isinstance(x, tuple) else "node" for key, x in answer.items()}

    assert without_nodes(found) == without_nodes(expected)
    assert list(found) == list(expected) or isinstance(found, list) or helper.startswith("get_all_output")


def test_inputs_come_in_the_order_of_torch() -> None:
    x = torch.rand(3, 4, requires_grad=True)
    with contextlib.ExitStack() as stack:
        theirs = aot_export_joint_with_descriptors(stack, model(), (x,)).graph_module.graph
        expected = [node.meta["desc"] for node in theirs.find_nodes(op="placeholder")]
    joint = trace_joint(model(), x)
    assert [given.node.meta["desc"] for given in joint.inputs] == expected


def test_helpers_of_torch_answer_where_an_object_holds_a_tensor() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys = torch.rand(2, requires_grad=True)

    joint = trace_joint(lambda cache, x: cache.keys * x, Cache(), torch.rand(2))
    nodes = fx_utils.get_all_input_and_grad_nodes(joint.graph_module.graph)
    assert [grad is not None for _, grad in nodes.values()] == [False, True, False]


def test_example_inputs_and_fakes() -> None:
    x = TwoTensor(torch.rand(6, 4), torch.rand(6, 4)).requires_grad_()
    mark_dynamic(x, 0)
    joint = trace_joint(torch.sin, x)
    examples, fakes = joint.example_inputs(), joint.fake_inputs()
    assert [type(x) for x in examples] == [MetaTensor, MetaTensor, torch.SymInt, MetaTensor, MetaTensor]
    assert [type(x) for x in fakes] == [FakeTensor, FakeTensor, torch.SymInt, FakeTensor, FakeTensor]
    assert fakes[0].shape[0].node.expr == fakes[2].node.expr and len({x.fake_mode for x in fakes[:2]}) == 1
    nodes = [node for node in joint.graph_module.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    assert len(nodes) > 4 and all(n.meta["val"].fake_mode is fakes[0].fake_mode for n in nodes)
    with joint.fakes():
        assert torch._guards.detect_fake_mode() is fakes[0].fake_mode
    assert torch._guards.detect_fake_mode() is None


def test_each_input_is_an_object_of_its_own() -> None:
    """A tracer tells inputs apart by identity, and equal specs are one object."""
    x = torch.rand(4, requires_grad=True)
    joint = trace_joint(lambda x, y, z: x * y + z, x, torch.rand(4), torch.rand(4))
    nodes = joint.graph_module.graph.find_nodes(op="placeholder")
    for inputs in (joint.example_inputs(), joint.fake_inputs(), [node.meta["val"] for node in nodes]):
        assert len({id(x) for x in inputs}) == len(inputs) == 4
        again = make_fx(joint.graph_module)(*inputs)
        values = [torch.full((4,), float(n)) for n in range(4)]
        assert not any(difference(*pair) for pair in zip(again(*values), joint.graph_module(*values), strict=True))


def test_passes_of_torch_run_on_the_graph_as_it_is() -> None:
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    for dynamic in (False, True):
        x = torch.rand(3, 4, requires_grad=True)
        joint = trace_joint(module, x, dynamic=dynamic)
        joint_graph_passes(joint.graph_module)
        results = [f(x) for f in (module, compile_joint(joint).bind(module))]
        assert not difference(*results)
        assert not difference(*[torch.autograd.grad(y.sin().sum(), x)[0] for y in results])


def test_sizes_may_be_symbols() -> None:
    layer = nn.Linear(4, 2)
    sizes = [given.node.meta["val"].shape for given in trace_joint(layer, torch.rand(6, 4), dynamic=True).inputs]
    assert [type(size[0]) for size in sizes] == [int, int, torch.SymInt, torch.SymInt]
    x = torch.rand(6, 4)
    mark_dynamic(x, 0)
    sizes = [given.node.meta["val"].shape for given in trace_joint(layer, x, dynamic=False).inputs]
    assert all(type(n) is int for size in sizes for n in size)


def test_decompositions() -> None:
    x = torch.rand(3, 4)
    table = {torch.ops.aten.t.default: lambda x: x.permute(1, 0)}
    for chosen in (table, "inductor"):
        graph = trace_joint(nn.Linear(4, 2), x, decompositions=chosen).graph_module.graph
        assert not graph.find_nodes(op="call_function", target=torch.ops.aten.t.default)


def test_a_transform_is_refused() -> None:
    with pytest.raises(TraceError, match="trace the transformed function"):
        torch.func.grad(lambda x: trace_joint(torch.sin, x) and x.sum())(torch.ones(2))


def double(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("quantized", [False, True])
def test_a_joint_graph_goes_through_pickle(quantized: bool) -> None:
    """With static sizes. What was loaded is compiled for the model as it is, and does what that does."""
    module = model()
    if quantized:
        quantize_(module, Int8Weight)
    x = torch.rand(3, 4)
    loaded = pickle.loads(pickle.dumps(trace_joint(module, x)))
    assert [given.name for given in loaded.inputs] == [given.name for given in trace_joint(module, x).inputs]
    loss = compile_joint(loaded).bind(module)(x).sum()
    loss.backward()
    found = {name: p.grad for name, p in module.named_parameters()}
    module.zero_grad()
    expected = module(x).sum()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_a_function_goes_through_pickle() -> None:
    loaded = pickle.loads(pickle.dumps(trace_joint(double, torch.ones(2, requires_grad=True))))
    assert compile_joint(loaded).bind(double)(torch.ones(2, requires_grad=True)).tolist() == [2, 2]


class Pair:
    """A container that torch's pytree knows."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self.first, self.second = first, second


torch.utils._pytree.register_pytree_node(Pair, lambda p: ([p.first, p.second], None), lambda parts, _: Pair(*parts))


def pair(x: Tensor) -> Pair:
    return Pair(x.sin(), x.cos())


def test_results_in_a_container_of_the_pytree_go_through_pickle() -> None:
    x = torch.ones(2, requires_grad=True)
    loaded = pickle.loads(pickle.dumps(trace_joint(pair, x)))
    got = compile_joint(loaded).bind(pair)(x)
    assert type(got) is Pair
    torch.testing.assert_close([got.first, got.second], [x.sin(), x.cos()])


def test_what_passes_have_noted_goes_through_pickle() -> None:
    """Which phase a node is in, what to compute again, what the user has annotated, and where nodes come from."""
    module = quantize_(model(), Int8Weight)
    joint = trace_joint(module, torch.rand(3, 4))
    (relu,) = joint.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    relu.meta.update(recompute=CheckpointPolicy.MUST_SAVE, custom={"expert": 3}, local=lambda: None)
    relu.meta["partitioner_tag"] = "is_backward"
    loaded = pickle.loads(pickle.dumps(joint))
    (again,) = loaded.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    assert "local" not in again.meta
    for key in ("recompute", "custom", "partitioner_tag", "stack_trace", "seq_nr", "nn_module_stack"):
        assert again.meta[key] == relu.meta[key]
    for before, after in zip(joint.inputs, loaded.inputs, strict=True):
        assert before.node.meta["desc"] == after.node.meta["desc"]
    assert joint.graph_module.graph.output_node().meta["desc"] == loaded.graph_module.graph.output_node().meta["desc"]
