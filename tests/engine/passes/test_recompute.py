"""What backward recomputes: less is saved, gradients are the same, and writes that eager allows are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils.checkpoint import checkpoint

from subclass_aot import Int8Weight, TwoTensor, aot_compile, trace_joint
from subclass_aot.engine.passes import default_partition
from subclass_aot.engine.passes.costs import Costs
from subclass_aot.engine.passes.nodes import viewed_node
from subclass_aot.engine.passes.recompute import is_cheap

aten = torch.ops.aten


def wide(*size: int) -> torch.Tensor:
    """Wide enough that products take nearly all of the time."""
    return (torch.rand(*size) + 0.5).requires_grad_()


def partition(fn: Any, *args: Any, fuses: bool = False) -> tuple[fx.GraphModule, fx.GraphModule]:
    joint = trace_joint(fn, *args)
    return default_partition(joint.graph_module, [], num_fwd_outputs=joint.num_forward_outputs, fuses=fuses)


def saved_bytes(forward: fx.GraphModule, backward: fx.GraphModule) -> float:
    """Bytes that forward keeps for backward beside its inputs."""
    of_forward, costs = {n.name: n for n in forward.graph.nodes}, (Costs(forward.graph), Costs(backward.graph))
    given = [n for n in backward.graph.find_nodes(op="placeholder") if not n.name.startswith("tangents")]
    bases = {costs[0].base(of_forward[n.name]): costs[1].num_bytes[n] for n in given}
    return sum(size for node, size in bases.items() if node.op != "placeholder")


def operators(graph: fx.GraphModule) -> list[Any]:
    return [n.target for n in graph.graph.nodes if n.op == "call_function"]


NORM = nn.RMSNorm(256)
LAYER_NORM = nn.LayerNorm(256)
W = wide(256, 256)
BIG = 256 * 256 * 4

PROGRAMS: dict[str, tuple[Callable[..., Any], float]] = {
    "a gated product": (lambda x, y: (F.silu(x @ W) * (y @ W)) @ W, 2 * BIG),
    "a norm": (lambda x, y: NORM(x @ W) @ (y @ W), 2 * BIG + 2 * 256 * 4),
    "a layer norm": (lambda x, y: LAYER_NORM(x @ W) @ (y @ W), 2 * BIG + 2 * 256 * 4),
    "an activation": (lambda x, y: F.gelu(x @ W) @ (y @ W), 2 * BIG),
    "a cast": (lambda x, y: (x @ W).bfloat16().float().square() @ (y @ W), 1.5 * BIG),
    "a long mask": (lambda x, y: (x @ W).masked_fill((x @ W) > 9, 0.0) @ y, 1.5 * BIG),
}
"""Programs, and the most bytes that they save beside their inputs."""


@pytest.mark.parametrize("fuses", [False, True], ids=["one by one", "fused"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_follows_from_what_is_saved_is_not_saved(name: str, fuses: bool) -> None:
    program, most = PROGRAMS[name]
    assert 0 < saved_bytes(*partition(program, wide(256, 256), wide(256, 256), fuses=fuses)) <= most


def test_dropout_masks_are_saved_as_booleans() -> None:
    forward, backward = partition(lambda x: F.dropout(x @ W, 0.1) @ W, wide(256, 256))
    assert saved_bytes(forward, backward) <= 1.25 * BIG
    x = wide(256, 256)
    results = []
    for fn in (lambda x: F.dropout(x @ W, 0.1) @ W, aot_compile(lambda x: F.dropout(x @ W, 0.1) @ W)):
        torch.manual_seed(5)
        results.append(torch.autograd.grad(fn(x).sin().sum(), x)[0])
    assert torch.equal(*results)


def test_a_padded_tensor_that_a_convolution_reads_is_saved() -> None:
    weight = torch.rand(8, 8, 3, 3, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.pad(F.conv2d(x, weight).relu(), (0, 1, 0, 1)), weight, stride=2)

    _, backward = partition(program, torch.rand(2, 8, 32, 32, requires_grad=True), fuses=True)
    pads = [n for n in backward.graph.nodes if n.target is aten.constant_pad_nd.default]
    assert all(n.args[1] == [0, -1, 0, -1] for n in pads)  # the gradient of a padded tensor


def test_a_long_chain_is_not_recomputed_as_a_whole() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        x = x @ W
        for _ in range(40):
            x = (x * x).sin()
        return x

    forward, backward = partition(chain, wide(256, 256), fuses=True)
    assert 3 <= saved_bytes(forward, backward) / BIG <= 20


def test_operators_one_by_one_are_recomputed_within_a_twentieth_of_the_time() -> None:
    """Without products there is nothing to hide recomputation behind."""
    for program in (lambda x: x.sin().cos().exp(), lambda x: F.silu(x) * x.sigmoid(), lambda x: F.softmax(x, -1).log()):
        forward, backward = partition(program, wide(256, 256))
        computed = [
            {n.name for n in g.graph.nodes if n.op == "call_function" and viewed_node(n) is None}
            for g in (forward, backward)
        ]
        assert not computed[0] & computed[1], "nodes keep their names"


def test_what_is_recomputed_runs_just_before_it_is_read() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = F.gelu(x @ W)
        return x

    _, backward = partition(program, wide(256, 256))
    order = {node: i for i, node in enumerate(backward.graph.nodes)}
    again = [n for n in backward.graph.nodes if n.target is aten.gelu.default]
    assert len(again) >= 2
    assert all(min(order[user] for user in n.users) - order[n] <= 2 for n in again)


def test_what_a_checkpoint_computes_again_does_not_live_until_it_is_read() -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = 0.5 * x * (1 + torch.tanh(x @ W))
        return x

    forward, backward = partition(lambda x: checkpoint(block, x @ W, use_reentrant=False), wide(256, 256), fuses=True)
    assert saved_bytes(forward, backward) <= BIG
    tanh = [n for n in backward.graph.nodes if n.target is aten.tanh.default]
    assert len(tanh) == 4, "costly operators run once"
    assert operators(backward).count(aten.add.Tensor) > 4, "cheap ones run again"


def test_inputs_that_eager_mode_does_not_keep_may_be_written() -> None:
    """The output of exp is saved, not its input; a bias is not read by backward."""
    weight, bias = wide(64, 64), wide(64)
    compiled = aot_compile(lambda x, bias: torch.exp(x * 1.0) @ weight + bias)
    for write in ("x", "bias"):
        results = []
        for fn in (compiled, compiled.fn):
            x = torch.linspace(0, 1, 64 * 64).view(64, 64).requires_grad_()
            out = fn(x, bias)
            with torch.no_grad():
                (x if write == "x" else bias).add_(1)
            out.sum().backward()
            results.append(x.grad)
        torch.testing.assert_close(*results)


def test_an_input_that_is_read_anyway_still_raises_when_it_is_written() -> None:
    compiled = aot_compile(lambda x: F.gelu(x) @ W)
    x = wide(256, 256)
    out = compiled(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x + 1)], ids=["dense", "wrapped"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str, dynamic: bool, wrap: Any) -> None:
    program, _ = PROGRAMS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for rows in (256, 256):
        values = [wrap(torch.rand(rows, 256) / 16).requires_grad_() for _ in range(2)]
        expected = torch.autograd.grad(program(*values).sum(), values)
        got = torch.autograd.grad(compiled(*values).sum(), values)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(torch.mul(a, 1), torch.mul(b, 1))


def test_a_quantized_weight_is_not_kept_dense() -> None:
    weight = Int8Weight.from_float(torch.randn(256, 256))
    forward, backward = partition(lambda x: F.gelu(x @ weight.t()) @ weight, wide(256, 256))
    assert saved_bytes(forward, backward) <= 1.1 * BIG


def test_random_operators_are_not_cheap() -> None:
    graph = trace_joint(lambda x: torch.rand_like(x) + F.dropout(x), torch.rand(3)).graph_module.graph
    cheap = {str(n.target) for n in graph.nodes if is_cheap(n)}
    assert "aten.add.Tensor" in cheap and not any("rand" in name or "bernoulli" in name for name in cheap)
