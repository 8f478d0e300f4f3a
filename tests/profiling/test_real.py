"""Real tensors are profiled as those without data."""

import copy

import torch
from torch import nn

import subclass_aot as sa


def test_both_write_the_same_timeline() -> None:
    model, x = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)), torch.randn(16, 8)

    def step(model: nn.Module, x: torch.Tensor) -> None:
        model(x).square().sum().backward()

    without = sa.profile(step, model, x)
    real = copy.deepcopy(model)
    with sa.profile(real) as report:
        step(real, x)
    assert [(w.phase, w.module, w.operator, w.flops, w.moved) for w in report.timeline.work] == [
        (w.phase, w.module, w.operator, w.flops, w.moved) for w in without.timeline.work
    ]
    assert max(report.timeline.curve()) == max(without.timeline.curve())


def test_operators_within_a_real_wrapper_are_counted() -> None:
    model = sa.quantize_(nn.Sequential(nn.Linear(8, 32)), sa.Int8Weight)
    with torch.no_grad(), sa.profile(model) as report:
        model(torch.randn(16, 8))
    assert report.flops() == 2 * 16 * 8 * 32
    assert [each.cls for each in report.wrappers] == ["Int8Weight"]
    assert report.wrappers[0].logical == 1024 and report.wrappers[0].held < 512


def test_a_block_without_data_inside_is_counted_once() -> None:
    with sa.profile(nn.Module()) as report, sa.meta():
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert report.flops() == 2 * 2 * 3 * 4
