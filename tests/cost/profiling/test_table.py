"""Reports as text."""

import torch
from torch import nn

import subclass_aot as sa


def test_a_report_says_what_was_not_counted() -> None:
    report = sa.profile(torch.fft.rfft, torch.randn(64))
    assert "not counted         products of _fft_r2c (1x): there is no formula" in str(report)


def test_the_workspace_of_a_convolution_on_a_gpu_is_not_known() -> None:
    report = sa.profile(nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8), device="H100")
    assert "not known           the workspace of convolution (1x)" in str(report)


def test_the_sizes_of_wrappers_stand_in_the_table() -> None:
    model = sa.quantize_(nn.Sequential(nn.Linear(64, 64)), sa.Int8Weight)
    text = str(sa.profile(model, torch.ones(2, 64)))
    assert "0.weight Int8Weight: 16.00 KiB as a dense tensor, 4.25 KiB held 3.8x" in text


def test_a_difference_shows_what_a_change_bought() -> None:
    model, x = nn.Sequential(nn.Linear(64, 64), nn.Tanh()), torch.randn(1000, 64)
    lines = str(sa.profile(model, x) - sa.profile(model, x.repeat(2, 1))).splitlines()
    assert lines[0].split() == ["before", "after", "change"]
    saved = next(line for line in lines if line.startswith("saved for backward"))
    assert saved.split()[-1] == "-50.0%"


def test_what_libraries_keep_on_a_cpu_is_named() -> None:
    layer, x = nn.Linear(8, 8), torch.randn(2, 8)
    assert "not counted         what MKL and oneDNN keep" in str(sa.profile(layer, x))
    assert "oneDNN" not in str(sa.profile(layer, x, device="H100")) + str(sa.profile(torch.sin, x))
