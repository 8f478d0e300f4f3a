"""Sums, owners and moments of a report."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling import Report
from subclass_aot.errors import ProfileError


def report() -> Report:
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Sequential(nn.Linear(256, 256), nn.ReLU()))
    found: Report = sa.profile(model, torch.randn(32, 64), optimizer=torch.optim.AdamW)
    return found


def test_sums_are_the_same_however_they_are_grouped() -> None:
    found = report()
    for sums in (found.flops, found.bytes_moved):
        for by in ("phase", "module", "operator", "line"):
            assert sum(sums(by=by).values()) == sums() > 0
        assert sum(sums(phase) for phase in ("forward", "backward", "optimizer")) == sums()
    assert found.flops(by="module", depth=1).keys() == {"0", "2"}


def test_the_moment_of_the_peak_is_said() -> None:
    found = report()
    moment = found.peak_at
    assert moment.phase in ("backward", "optimizer") and moment.operator
    assert sum(found.owners(when=moment.event).values()) == found.peak


def test_what_is_not_there_is_an_error_that_says_what_is() -> None:
    found = report()
    with pytest.raises(ProfileError, match="'kind', 'module'"):
        found.owners("colour")
    with pytest.raises(ProfileError, match="'forward', 'backward', 'optimizer'"):
        found.owners(when="recompute")
    with pytest.raises(ProfileError, match="'phase', 'module'"):
        found.flops(by="name")
