"""What is noted of nodes: annotations of the user's, modules that are called, numbers of autograd."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.fx.traceback import annotate
from torch.utils.checkpoint import checkpoint

from subclass_aot import Int8Weight, aot_compile, quantize_, trace_joint
from tests.torches import TORCH


class Layers(nn.Module):
    def __init__(self, writes: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.writes = writes

    def forward(self, x: Tensor) -> Tensor:
        with annotate({"model": True}):
            for i, layer in enumerate(self.layers):
                with annotate({"layer": i}):
                    x = layer(x).sin()
                    if self.writes:
                        x.mul_(2)
        return x.cos()


X = torch.ones(3, 4)
_TWICE = {torch.ops.aten.detach.default}


def computed(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function" and node.target not in _TWICE]


def numbered(nodes: list[fx.Node]) -> list[int]:
    """The numbers of autograd, counted from the first."""
    order: dict[int, int] = {}
    return [order.setdefault(node.meta["seq_nr"], len(order)) for node in nodes]


@pytest.mark.parametrize("writes", [False, True])
def test_as_torch_does(writes: bool) -> None:
    with contextlib.ExitStack() as stack:
        theirs = computed(aot_export_joint_with_descriptors(stack, Layers(writes), (X,)).graph_module.graph)
    ours = computed(trace_joint(Layers(writes), X).graph_module.graph)
    assert [node.target for node in ours] == [node.target for node in theirs]
    assert [node.meta.get("custom") for node in ours] == [node.meta.get("custom") for node in theirs]
    for key in ("partitioner_tag", *(["autograd_backward"] if TORCH >= (2, 13) else [])):  # older ones do not note it
        assert [node.meta.get(key) for node in ours] == [node.meta.get(key) for node in theirs]
    assert numbered(ours) == numbered(theirs)
    assert "custom" not in fx.traceback.get_current_meta()


@pytest.mark.parametrize("quantized", [False, True])
def test_modules_that_are_called(quantized: bool) -> None:
    module: Any = quantize_(Layers(), Int8Weight) if quantized else Layers()
    nodes = computed(trace_joint(module, X).graph_module.graph)
    (root,) = {node.meta["nn_module_stack"][""] for node in nodes if "nn_module_stack" in node.meta}
    assert root == ("", f"{__name__}.Layers")
    linear = "torch.nn.modules.linear.Linear"
    products = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}
    forward = [node for node in nodes if node.target in products and "autograd_backward" not in node.meta]
    assert [[*node.meta["nn_module_stack"].values()] for node in forward] == [
        [root, ("layers.0", linear)],
        [root, ("layers.1", linear)],
    ]
    back = [node for node in nodes if node.target is torch.ops.aten.mm.default and "fwd_nn_module_stack" in node.meta]
    assert {[*node.meta["fwd_nn_module_stack"]][-1] for node in back} == (
        {"layers.1"} if quantized else {"layers.0", "layers.1"}
    )
    assert not any("nn_module_stack" in node.meta for node in back)


def test_modules_of_a_function_and_one_that_raises() -> None:
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError

    first, second, raises = nn.Linear(4, 4), nn.Sequential(nn.Sigmoid()), Raises()

    def program(x: Tensor) -> Tensor:
        with contextlib.suppress(ValueError):
            raises(x)
        return second(first(x)).exp()

    before = nn.Module.__call__
    nodes = computed(trace_joint(program, X.clone().requires_grad_()).graph_module.graph)
    stacks = {node.name: [*node.meta.get("nn_module_stack", {})] for node in nodes}
    assert (stacks["addmm"], stacks["sigmoid"], stacks["exp"]) == ([""], ["", "0"], [])
    assert nn.Module.__call__ is before


def test_what_a_checkpoint_computes_again() -> None:
    layers = Layers()

    def program(x: Tensor) -> Any:
        return checkpoint(layers, x, use_reentrant=False)

    nodes = computed(trace_joint(program, X.clone().requires_grad_()).graph_module.graph)
    again = [n for n in nodes if n.target is torch.ops.aten.sin.default and "autograd_backward" in n.meta]
    assert [node.meta.get("custom", {}).get("layer") for node in again] == [0, 1, None]
    assert all([*node.meta["fwd_nn_module_stack"]] == [""] for node in again)


def test_compilers_get_them() -> None:
    found: list[fx.Graph] = []

    def compiler(graph_module: fx.GraphModule, inputs: Any) -> Any:
        found.append(graph_module.graph)
        return lambda *args: graph_module(*args)

    aot_compile(Layers(), fw_compiler=compiler)(X).sum().backward()
    assert all(any("custom" in node.meta for node in computed(graph)) for graph in found) and len(found) == 2
