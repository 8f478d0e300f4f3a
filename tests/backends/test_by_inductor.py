"""Torch's own compiler behind our graphs, against eager."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import nn

from benchmarks.demo.digits import Digits, quantized_vit
from benchmarks.demo.lockstep import WithLoss
from subclass_aot import Int8Weight, QuantAwareWeight, TwoTensor, aot_compile
from subclass_aot.testing import dense_leaves, difference

# Inductor warns of parts of torch that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")


def agree(module: nn.Module, *args: Any) -> Any:
    """One step in eager mode and one compiled; returns the compiled module."""
    twin = copy.deepcopy(module)
    compiled = aot_compile(twin, fw_compiler="inductor")
    expected, got = module(*args), compiled(*args)
    torch.testing.assert_close(got, expected)
    expected.sum().backward()
    got.sum().backward()
    for (name, ours), theirs in zip(twin.named_parameters(), module.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None) and type(ours.grad) is type(theirs.grad), name
        if ours.grad is not None:
            for a, b in zip(dense_leaves(ours.grad), dense_leaves(theirs.grad), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    return compiled


def dense(layer: nn.Linear) -> None:
    pass


def frozen(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight), requires_grad=False)


def trained(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(QuantAwareWeight(layer.weight.detach()))


@pytest.mark.parametrize("change", [dense, frozen, trained], ids=lambda change: change.__name__)
def test_small_model(change: Callable[[nn.Linear], None]) -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    change(module[3])
    agree(module, torch.randn(5, 6))


def test_writes_into_inputs() -> None:
    def program(x: Any, y: torch.Tensor) -> Any:
        y.mul_(2)
        x.b.add_(1)
        return x * y

    def make() -> tuple[Any, torch.Tensor]:
        return TwoTensor(torch.ones(3), torch.ones(3)), torch.arange(3.0)

    (x, y), (z, w) = make(), make()
    expected, got = program(x, y), aot_compile(program, fw_compiler="inductor")(z, w)
    for a, b in ((x, z), (expected, got)):
        for one, other in zip(dense_leaves(a), dense_leaves(b), strict=True):
            torch.testing.assert_close(one, other)
    assert torch.equal(y, w)


@pytest.mark.long
def test_the_digits_model() -> None:
    digits = Digits.load()
    agree(WithLoss(quantized_vit()), digits.train_images[:32], digits.train_labels[:32])


@pytest.mark.parametrize(("layout", "dynamic"), [(torch.contiguous_format, True), (torch.channels_last, False)])
def test_convolutions_keep_the_strides_that_backward_is_told(layout: torch.memory_format, dynamic: bool) -> None:
    convolution = nn.Conv2d(3, 4, 3, padding=1)
    compiled = aot_compile(copy.deepcopy(convolution), fw_compiler="inductor", dynamic=dynamic)
    x = torch.rand(2, 3, 8, 8).to(memory_format=layout)
    gradients = []
    for module in (convolution, compiled):
        given = x.clone().requires_grad_()
        result = module(given).tanh()
        result.square().sum().backward()
        gradients.append((result.detach(), given.grad))
    for expected, got in zip(*gradients, strict=True):
        assert not difference(expected, got, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(compiled.fn.parameters(), convolution.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


class Residual(nn.Module):
    """Convolutions, a norm that writes its statistics, pooling, and views of what convolutions give."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 16, classes)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        x = torch.relu(x + self.norm(self.conv(torch.sigmoid(x))))
        features = self.pool(x).view(x.shape[0], 8, 16)  # of a contiguous tensor, as it is recorded
        return self.head(features.softmax(-1).flatten(1)), features


def follows(module: nn.Module, x: Any, **options: Any) -> None:
    """Two training steps against eager: results with their strides, gradients, buffers."""
    twin = copy.deepcopy(module)
    compiled = aot_compile(twin, fw_compiler="inductor", **options)
    for _ in range(2):
        x, y = (x.detach().clone().requires_grad_() for _ in range(2))
        expected, got = module(x), compiled(y)
        for a, b in zip(expected, got, strict=True):
            assert not difference(a.detach(), b.detach(), rtol=1e-3, atol=1e-4)
        for results in (expected, got):
            sum(r.square().sum() for r in results).backward()
        assert not difference(x.grad, y.grad, rtol=1e-2, atol=1e-3)
        for (name, a), b in zip(module.named_parameters(), twin.parameters(), strict=True):
            assert not difference(a.grad, b.grad, rtol=1e-2, atol=1e-3), name
        for a, b in zip(module.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_convolutional_networks(layout: torch.memory_format, dynamic: bool) -> None:
    x = torch.rand(2, 3, 8, 8).to(memory_format=layout)
    module = Residual()
    if layout is torch.channels_last:
        module.pool = nn.Sequential(nn.MaxPool2d(2), nn.Identity())
        module.forward = functools.partial(_channels_last, module)
    follows(module, x, dynamic=dynamic)


def _channels_last(self: Any, x: Any) -> Any:
    x = self.stem(x)
    x = torch.relu(x + self.norm(self.conv(torch.sigmoid(x))))
    features = self.pool(x)
    return self.head(features.softmax(-1).flatten(1)), features


def test_a_convolutional_network_with_wrappers() -> None:
    module = Residual()
    module.head.weight = nn.Parameter(Int8Weight.from_float(module.head.weight), requires_grad=False)
    follows(module, torch.rand(2, 3, 8, 8))


def test_a_convolutional_network_that_computes_again() -> None:
    follows(Residual(), torch.rand(2, 3, 8, 8), partition_fn=min_cut_rematerialization_partition)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return (self.out(mixed.transpose(1, 2).flatten(2)),)


@pytest.mark.parametrize("dynamic", [False, True])
def test_attention(dynamic: bool) -> None:
    follows(Attention(), torch.rand(2, 5, 8), dynamic=dynamic)


def test_other_gradients_read_what_inductor_saved() -> None:
    """A backward for another kind of gradient is compiled for the strides that forward gives."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Sigmoid(), nn.Conv2d(4, 4, 3, padding=1), nn.Sigmoid())
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    for p in module.parameters():
        p.requires_grad_(False)
    compiled = aot_compile(module, fw_compiler="inductor")
    out = compiled(x)
    (made,) = compiled._specializations
    forward = made.graphs.forward
    (returned,) = forward.graph.find_nodes(op="output")
    chosen = [forward.meta["output_strides"][i] for i in sorted(forward.meta["free_outputs"])]
    recorded = [returned.args[0][i].meta["spec"].stride for i in sorted(forward.meta["free_outputs"])]
    assert chosen != recorded, "inductor prefers channels-last here"
    tangent = TwoTensor(torch.rand(2, 4, 8, 8), torch.rand(2, 4, 8, 8))
    (expected,) = torch.autograd.grad(module(x), x, tangent)
    (got,) = torch.autograd.grad(out, x, tangent)
    for a, b in zip(dense_leaves(expected), dense_leaves(got), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("others", ["eager", lambda graph, inputs: graph.forward])
def test_another_compiler_for_backward_is_given_the_strides_that_were_recorded(others: Any) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Sigmoid(), nn.Conv2d(4, 4, 3, padding=1), nn.Sigmoid())
    follows(nn.Sequential(module, nn.Flatten(), nn.Unflatten(0, (1, 2))), torch.rand(2, 3, 8, 8), bw_compiler=others)


def test_a_first_program_with_pooling() -> None:
    """Decompositions of inductor use a part of it that they do not import."""
    lines = [
        "import torch, subclass_aot as sa",
        "pool = torch.nn.MaxPool2d(2)",
        "x = torch.rand(1, 2, 4, 4)",
        "assert sa.aot_compile(pool, fw_compiler='inductor')(x).equal(pool(x))",
    ]
    subprocess.run([sys.executable, "-W", "ignore", "-c", "\n".join(lines)], check=True)


@pytest.mark.parametrize(("compiler", "dynamic"), [("eager", False), ("eager", True), ("inductor", False)])
def test_recurrent_layers(compiler: str, dynamic: bool) -> None:
    """The LSTM that torch runs for training on a CPU works only where autograd sees it."""
    layer = nn.LSTM(3, 4)
    compiled = aot_compile(copy.deepcopy(layer), fw_compiler=compiler, dynamic=dynamic)
    x = torch.rand(2, 2, 3)
    for module in (layer, compiled):
        module(x)[0].square().sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))
    for ours, theirs in zip(compiled.fn.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_what_inductor_assumes_of_sizes_is_known_when_it_finds_the_graph_in_its_cache() -> None:
    """It keeps assumptions about inputs that are numbers, and the size of a tensor is none."""
    number = torch.rand(()).item() + time.time() % 1  # nobody has compiled this

    def program(x: Any) -> Any:
        return (x * number).sum()

    recompiles = []
    for _ in range(2):
        compiled = aot_compile(program, fw_compiler="inductor", dynamic=True)
        for size in (6, 7, 100_000, 8):  # inductor adds up many elements in another way than few
            x = torch.rand(size)
            torch.testing.assert_close(compiled(x), program(x))
        recompiles.append(compiled.recompiles)
    assert recompiles[0] == recompiles[1] and len(recompiles[0]) == 1


def test_a_size_that_depends_on_data_and_is_known_by_what_is_written() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(3, 2)
        rows[mask] = x
        return rows + 1

    given = torch.randn(2, 2, requires_grad=True), torch.tensor([True, False, True])
    torch.testing.assert_close(aot_compile(program, fw_compiler="inductor")(*given), program(*given))
