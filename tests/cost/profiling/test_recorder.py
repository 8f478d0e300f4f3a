"""What the recorder knows of memory: whose it is, and when it is what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import real_peak


def test_what_autograd_saves_is_saved_from_then_on() -> None:
    def program(x: torch.Tensor) -> None:
        x.exp().sum().backward()

    report = sa.profile(program, torch.randn(1000, requires_grad=True))
    assert report.saved == 4000 and report.owners("operator", "forward")["exp"] == 4000
    assert report.owners("kind", "end") == {"input": 4000, "gradient": 4000}


def test_what_a_checkpoint_computes_again_is_saved_once_more() -> None:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])

    def program(layers: nn.Module, x: torch.Tensor) -> None:
        checkpoint(layers, x, use_reentrant=False).sum().backward()

    report = sa.profile(program, layers, torch.randn(1000, 64))
    assert report.flops("recompute") == report.flops("forward") > 0
    assert report.owners("kind", "recompute")["saved"] >= 4 * 256_000


def test_gradients_are_added_in_place_as_autograd_does() -> None:
    def program(x: torch.Tensor) -> None:
        y = x.mul(2)
        (y.mul(3) + y.mul(4) + y.mul(5)).sum().backward()

    x = torch.randn(1000, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    assert sa.profile(program, x).peak == pytest.approx(real_peak(lambda: program(other), 4000), abs=64)


def test_gradients_of_parts_are_added_into_a_whole_one() -> None:
    def program(x: torch.Tensor) -> None:
        y = x * 2
        (y[0] * y[1] * y[2] * y[3]).sum().backward()

    x = torch.randn(64, 1000, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    assert sa.profile(program, x).peak == pytest.approx(real_peak(lambda: program(other), x.nbytes), abs=64)


@pytest.mark.parametrize("operator", [torch.exp, torch.tanh, lambda x: x.softmax(1)])
def test_what_autograd_saves_goes_with_a_result_that_is_dropped(operator: Callable[..., torch.Tensor]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        operator(x).argmax(1)
        return x.detach() * 2

    x = torch.randn(100, 100, requires_grad=True)
    assert sa.profile(program, x).peak == pytest.approx(real_peak(lambda: program(x), x.nbytes), abs=1000)


def test_second_gradients_are_added_into_the_first() -> None:
    def program(layer: nn.Linear, x: torch.Tensor) -> None:
        for _ in range(3):
            layer(x).sum().backward()

    layer, x = nn.Linear(100, 100), torch.randn(2, 100)
    report = sa.profile(program, layer, x)
    assert report.peak == pytest.approx(real_peak(lambda: program(layer, x), 40_400 + 800), rel=0.005)
    assert report.gradients == 40_400


def test_tensors_from_before_are_there_from_the_beginning() -> None:
    table = torch.randn(500)
    with sa.profile(nn.Module()) as report:
        y = torch.zeros(10)
        z = table.sin()
    assert report.owners("kind", 0) == {"constant": 2000} and len(y) < len(z)


def test_storages_that_change_their_size_are_followed() -> None:
    with sa.meta(), sa.profile(nn.Module()) as report:
        x = torch.empty(100)
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(800)
    assert report.timeline.curve() == [0, 400, 0, 800, 0] or report.timeline.curve() == [0, 400, 0, 800]


def test_a_module_that_has_no_name_is_said_by_its_class() -> None:
    with sa.meta(), sa.profile(nn.Module()) as report:
        nn.Linear(3, 3)(torch.ones(2, 3))
    assert set(report.flops(by="module")) == {"Linear"}


def test_parts_of_one_tensor_that_kernels_split_are_no_memory_of_their_own() -> None:
    layer, x = nn.GRU(16, 32, batch_first=True), torch.randn(8, 10, 16)
    report = sa.profile(lambda layer, x: layer(x)[0].sum().backward(), layer, x)
    base = sum(p.nbytes for p in layer.parameters()) + x.nbytes
    real = real_peak(lambda: layer(x)[0].sum().backward(), base)
    assert report.peak == pytest.approx(real, rel=0.005)


def test_sparse_gradients_are_added_without_a_dense_one() -> None:
    table, words = nn.Embedding(10_000, 16, sparse=True), torch.randint(0, 10_000, (50,))

    def step(table: nn.Module, words: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        table(words).sum().backward()
        optimizer.step()

    report = sa.profile(step, table, words, torch.optim.SGD(table.parameters()))
    optimizer = torch.optim.SGD(table.parameters())
    real = real_peak(lambda: step(table, words, optimizer), 640_000 + 400)
    assert report.peak == pytest.approx(real, rel=0.02)
