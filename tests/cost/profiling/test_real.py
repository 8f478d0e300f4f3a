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


def test_sparse_gradients_are_their_entries() -> None:
    table = nn.Embedding(1000, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    with sa.profile(table) as report:
        table(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    assert report.optimizer_state == 2 * 16_000 and "peak" in str(report)


def test_a_trace_is_no_work_of_a_run() -> None:
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    compiled = sa.aot_compile(layer)
    with sa.profile(layer) as first:
        compiled(x).sum().backward()
    with sa.profile(layer) as second:
        compiled(x).sum().backward()
    assert first.flops() == second.flops() == 2 * (2 * 2 * 4 * 4)


def test_transforms_of_functions_run_in_a_profile() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(lambda v: (v @ v).exp()))(x)

    def trained(x: torch.Tensor) -> None:
        program(x.exp()).sum().backward()

    x = torch.randn(5, 3, requires_grad=True)
    assert sa.profile(trained, x).flops() > 0
    with sa.profile(nn.Module()) as report:
        trained(x)
    assert report.saved >= 60  # of the exponential around it, after the transform too
    assert torch.autograd.graph.disable_saved_tensors_hooks.__name__ == "disable_saved_tensors_hooks"
