"""Time at best, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import subclass_aot as sa
from subclass_aot.cost.devices import device_of
from subclass_aot.errors import ProfileError

SLOW = replace(device_of("H100"), flops={"float32": 1e6, "bfloat16": 4e6}, bandwidth=1e6, launch=1e-3)


def program(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).t().exp()


def test_each_operator_takes_its_longest_part() -> None:
    times = sa.profile(program, torch.empty(100, 100), device=SLOW).seconds()
    product, element = 2 * 100**3 / 1e6, 2 * 40_000 / 1e6
    assert times.by_operator == pytest.approx({"mm": product, "exp": element})
    assert times.seconds == pytest.approx(product + element)
    assert times.by_bound == pytest.approx({"compute": product, "memory": element})
    assert times.mfu == pytest.approx(product / (product + element))


def test_small_operators_are_bound_by_launches_and_views_are_free() -> None:
    times = sa.profile(program, torch.empty(2, 2), device=SLOW).seconds()
    assert times.by_bound == {"launch": 2e-3}


def test_dtypes_have_peaks_of_their_own() -> None:
    report = sa.profile(program, torch.empty(100, 100, dtype=torch.bfloat16), device=SLOW)
    assert report.seconds().by_operator["mm"] == pytest.approx(2 * 100**3 / 4e6)
    assert report.seconds("H100").seconds < report.seconds().seconds


def test_without_a_device_there_is_no_time() -> None:
    with pytest.raises(ProfileError, match="H100"):
        sa.profile(program, torch.empty(2, 2)).seconds()


@pytest.mark.parametrize("layer", [torch.nn.Conv2d(8, 8, 3), torch.nn.LSTM(64, 64)])
def test_cudnn_rounds_by_a_switch_of_its_own(layer: torch.nn.Module) -> None:
    """Convolutions of float32 round to tf32, and matrices do not, unless the user says otherwise."""
    fast = replace(SLOW, flops={"float32": 1e6, "tf32": 1e7}, bandwidth=1e12, launch=1e-12)
    x = torch.empty(4, 8, 32, 32) if isinstance(layer, torch.nn.Conv2d) else torch.empty(10, 4, 64)
    report = sa.profile(layer.eval(), x, device=fast)
    for allowed, peak in ((True, 1e7), (False, 1e6)):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
            assert report.seconds().seconds == pytest.approx(report.flops() / peak, rel=1e-3)
