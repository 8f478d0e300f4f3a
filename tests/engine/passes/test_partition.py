"""The default partition beside torch's: equal values and gradients, nothing more saved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import default_partition as torch_default_partition
from functorch.compile import min_cut_rematerialization_partition
from torch import fx

from benchmarks.demo.vit import ViT
from subclass_aot import QuantAwareWeight, TwoTensor, aot_compile, trace_joint
from subclass_aot.engine.passes import backward_from, default_partition
from subclass_aot.engine.runtime import split as split_trace
from subclass_aot.testing import difference

PARTITIONS = {
    "ours": None,
    "default": torch_default_partition,
    "min cut": min_cut_rematerialization_partition,
}


class Mixed(torch.nn.Module):
    """A convolution, a norm with buffers, a wrapper weight, views, and a write into an intermediate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.weight = torch.nn.Parameter(QuantAwareWeight(torch.rand(5, 36)))

    def forward(self, x: Any) -> Any:
        hidden = F.gelu(self.norm(self.conv(x)))
        hidden = hidden * 1.0
        hidden[0].mul_(2)
        logits = F.linear(hidden.flatten(1), self.weight)
        return F.cross_entropy(logits, torch.tensor([1, 4])), logits.t()


def models() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    torch.manual_seed(1)
    x, y, z = (torch.rand(3, 4, requires_grad=True) for _ in range(3))
    wrapper = TwoTensor(torch.rand(3, 4), torch.rand(3, 4)).requires_grad_()
    vit = ViT(image=8, patch=4, channels=1, layers=2, width=8, heads=2, hidden=16, classes=10)
    return {
        "mixed": (Mixed(), (torch.rand(2, 1, 5, 5),)),
        "vit": (vit, (torch.rand(3, 1, 8, 8),)),
        "views": (lambda x: (x.t().exp()[1:] * x.t()[:-1]).sum(), (x,)),
        "wrapper": (lambda x: (x @ x.t()).softmax(-1).log(), (wrapper,)),
        "gradient is an input": (lambda y, z: y * z, (y, z)),
        "gradient is the tangent": (lambda x: x.view(-1), (x.clone(),)),
        "constant": (lambda y: y * torch.arange(4.0), (y,)),
    }


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("name", models())
def test_values_and_gradients(name: str, partition: str) -> None:
    results = []
    for compiled in (False, True):
        fn, args = models()[name]
        call = aot_compile(fn, partition_fn=PARTITIONS[partition]) if compiled else fn
        out = call(*args)
        first = out[0] if isinstance(out, tuple) else out
        first.sum().backward() if type(first) is torch.Tensor else first.backward(torch.ones_like(first))
        leaves = [x for x in args if x.is_leaf] if not isinstance(fn, torch.nn.Module) else [*fn.parameters()]
        buffers = [*fn.buffers()] if isinstance(fn, torch.nn.Module) else []
        results.append([first, *[x.grad for x in leaves], *buffers])
    for expected, got in zip(*results, strict=True):
        found = difference(expected.detach(), got.detach(), strides=False) if expected is not None else got is None
        assert not found if expected is not None else found, found


def saved(name: str, partition: Any) -> int:
    fn, args = models()[name]
    trace = trace_joint(fn, *args)
    return len(split_trace(trace, partition).saved)


@pytest.mark.parametrize("name", models())
def test_no_more_is_saved_than_by_torch(name: str) -> None:
    assert saved(name, None) <= saved(name, torch_default_partition)


def split(fn: Any, *args: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    trace = trace_joint(fn, *args)
    return default_partition(trace.graph_module, [], num_fwd_outputs=trace.num_forward_outputs)


def operators(graph: fx.GraphModule) -> list[Any]:
    return [n.target for n in graph.graph.nodes if n.op == "call_function"]


def test_nothing_costly_is_done_twice() -> None:
    forward, backward = split(lambda x: (x @ x).exp().t().sin().sum(), torch.rand(3, 3, requires_grad=True))
    aten = torch.ops.aten
    assert aten.exp.default not in operators(backward) and operators(forward).count(aten.mm.default) == 1
    assert operators(backward).count(aten.mm.default) == 2
    assert aten.cos.default not in operators(forward)


def test_views_are_redone() -> None:
    forward, backward = split(lambda x: x.t()[1:].exp().sum(), torch.rand(3, 4, requires_grad=True))
    saved_nodes = [n for n in backward.graph.nodes if n.op == "placeholder" and not n.name.startswith("tangents")]
    assert [n.name for n in saved_nodes] == ["exp"]
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(3, 3, requires_grad=True)
    _, backward = split(lambda x, y: (x.t()[1:] * y).sum(), x, y)
    names = {n.name for n in backward.graph.nodes if n.op == "placeholder" and not n.name.startswith("tangents")}
    assert names == {"primals_1", "primals_2"}, "an input is kept, not its view"


def test_the_joint_graph_is_left_alone() -> None:
    trace = trace_joint(lambda x: x.exp().sum(), torch.rand(3, requires_grad=True))
    before = str(trace.graph_module.graph)
    default_partition(trace.graph_module, [], num_fwd_outputs=1)
    assert str(trace.graph_module.graph) == before


def test_a_partition_that_drops_an_input() -> None:
    def wrong(joint: Any, inputs: Any, *, num_fwd_outputs: int) -> Any:
        forward, backward = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
        unused = next(n for n in forward.graph.nodes if n.op == "placeholder" and not n.users)
        forward.graph.erase_node(unused)
        forward.recompile()
        return forward, backward

    from subclass_aot.errors import CompilerResultError

    with pytest.raises(CompilerResultError, match="must keep every input"):
        aot_compile(lambda x, y: x * 2, partition_fn=wrong)(torch.rand(2, requires_grad=True), torch.rand(2))


def test_backward_from_what_another_partition_saved() -> None:
    """It computes again what is not saved, and says what does not follow from it."""
    trace = trace_joint(lambda x: x.sin().exp(), torch.rand(3, requires_grad=True))
    joint, count = trace.graph_module, trace.num_forward_outputs
    named = {node.name: node for node in joint.graph.nodes}
    backward = backward_from(joint, [named["primals_1"]], num_fwd_outputs=count)
    x, tangent = torch.rand(3, requires_grad=True), torch.rand(3)
    (expected,) = torch.autograd.grad(x.sin().exp(), x, tangent)
    torch.testing.assert_close(backward(x.detach(), tangent)[0], expected)
    with pytest.raises(LookupError, match=r"args\[0\]"):
        backward_from(joint, [named["exp"]], num_fwd_outputs=count)
