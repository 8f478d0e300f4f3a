"""Reports as files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling import Report


def report() -> Report:
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8))
    found: Report = sa.profile(model, torch.randn(32, 64), optimizer=torch.optim.AdamW, device="H100", memory="1MiB")
    return found


def test_json_has_the_figures() -> None:
    found = report()
    figures = json.loads(found.to_json())
    assert figures["peak"] == found.peak and figures["fits"] is found.fits and figures["device"] == "H100 SXM"
    assert sum(figures["owners"]["kind"].values()) == found.peak
    assert sum(figures["flops"].values()) == found.flops()


def test_the_snapshot_has_the_same_peak(tmp_path: Path) -> None:
    found = report()
    found.memory_viz(tmp_path / "out.pickle")
    (trace,) = pickle.loads((tmp_path / "out.pickle").read_bytes())["device_traces"]
    live: dict[int, int] = {}
    peak = 0
    for event in trace:
        if event["action"] == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
        else:
            assert live.pop(event["addr"]) == event["size"]
        peak = max(peak, sum(live.values()))
    assert peak == found.peak
    assert any(frame["filename"] == __file__ for event in trace for frame in event["frames"])
