"""Reports beside real runs."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.cost.profiling import check as checks
from subclass_aot.cost.profiling.allocator import Change
from subclass_aot.errors import ProfileError


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=False)
        return x


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).square().mean().backward()
    optimizer.step()


def test_a_step_is_as_predicted_and_nothing_changes() -> None:
    model, x = Blocks(), torch.randn(256, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    before, state = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    check = sa.profile(step, model, optimizer, x).check()
    assert check and abs(check.peak_error) < 0.001 and check.first_product == ""
    assert list(check.phases) == ["forward", "recompute", "backward", "optimizer"]
    assert all(mine == pytest.approx(real, rel=0.05) for mine, real in check.phases.values())
    assert check.flops["recompute"][0] == check.flops["recompute"][1] > 0
    assert max(real for _, real in check.phases.values()) == check.peak
    assert torch.equal(state, torch.get_rng_state()) and not optimizer.state
    assert all(p.grad is None and torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert re.match(r"as predicted on cpu: the peak is .* predicted and .* in a run", str(check))


def test_a_model_without_data_for_another_device_is_predicted_again_for_this_one() -> None:
    with sa.meta("H100"):
        model = sa.quantize_(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)), sa.Int8Weight)
        report = sa.profile(model, torch.empty(512, 256), device="H100")
    if not torch.cuda.is_available():
        with pytest.raises(ProfileError, match=r'no cuda:0 on this machine.*\n.*check\(device="cpu"\)'):
            report.check()
    check = report.check(device="cpu")
    assert check and check.device == torch.device("cpu") == check.predicted.timeline.device
    assert check.peak_error == pytest.approx(0, abs=0.001) and report.timeline.device == torch.device("cuda:0")


def test_gradients_are_off_where_they_were() -> None:
    layer, x = nn.Linear(64, 64), torch.randn(512, 64)
    with torch.no_grad():
        report = sa.profile(layer, x)
    assert report.largest_batch(report.peak) == 512
    assert report.check().flops.keys() == {"forward"}


class Hidden(torch.autograd.Function):
    """Takes memory on the way that no tensor without data shows."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        if type(x) is torch.Tensor:
            torch.empty(100, 1000)
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        if type(grad) is torch.Tensor:
            grad @ torch.ones(grad.shape[1], 3)
        return grad * 2


class Hides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Hidden.apply(x.exp()).exp()  # type: ignore[no-any-return]


def test_differences_are_named() -> None:
    x = torch.zeros(50, 100, requires_grad=True)
    check = sa.profile(nn.Sequential(nn.Identity(), Hides()), x).check()
    assert not check and check.peak_error < -0.5
    assert check.first is not None and check.first.phase == "forward" and check.first.module == "1"
    assert check.first.meanwhile == pytest.approx(400_000, abs=25_000)
    assert check.first_product == "product 1: none predicted, mm of 30.00 kFLOP in backward in the run"
    assert "not as predicted" in str(check) and "first other memory" in str(check)


def test_what_cannot_be_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(4, 4)
    with sa.profile(layer) as report:
        layer(torch.ones(2, 4))
    with pytest.raises(ProfileError, match="of a block"):
        report.check()
    with sa.meta():
        huge = sa.profile(nn.Linear(10**6, 10**6), torch.empty(10**6, 10**6))
    with pytest.raises(ProfileError, match=r"The run would hold \d.* TiB on cpu at its peak, and .* are free"):
        huge.check()
    monkeypatch.setattr(checks, "bytes_free", lambda device: None)  # nobody knows
    assert sa.profile(layer, torch.ones(2, 4)).check()


def test_lists_of_memory_are_matched_where_they_go_on_together() -> None:
    def listed(*sizes: int) -> list[Change]:
        return [Change(size, {"mm" if size % 2 else "add": 0}) for size in sizes]

    assert checks._matched(listed(1, 2, 3), listed(1, 2, 3), 0) == [(1, 1), (2, 2), (3, 3)]
    assert checks._matched(listed(1, 2, 3, 8), listed(1, 7, 9, 2, 8), 0) == [(1, 1), (2, 4), (4, 5)]
    assert checks._matched(listed(1), [Change(1, {"add": 0})], 0) == []
    assert checks._matched([], listed(1), 0) == []
    large = 1 << 21
    assert checks._matched(listed(large), listed(large + 512), 1 << 20) == [(1, 1)]
