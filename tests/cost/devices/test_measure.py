"""Devices of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import subclass_aot as sa
from subclass_aot.__main__ import main
from subclass_aot.cost.devices import Device, device_of
from subclass_aot.cost.devices import measure as measures
from subclass_aot.errors import DeviceError


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_ENOUGH": 2e-4, "_ROUNDS": 1, "_COPIED": 1 << 20}.items():
        monkeypatch.setitem(measures.__globals__, name, value)


def test_this_machine_is_measured_and_written(tmp_path: Path) -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    found = measures("cpu")
    assert isinstance(found, Device) and found.type == "cpu" and found.capability is None
    assert found.multiprocessors == torch.get_num_threads() and found.memory > 1 << 28
    assert found.flops.keys() >= {"float32", "float64"} and all(each > 1e6 for each in found.flops.values())
    assert found.bandwidth > 1e7 and 0 < found.launch < 1e-2
    assert found.unseen == ("link_bandwidth", "link_latency") and "measured" in found.sources[0]
    assert torch.backends.cuda.matmul.allow_tf32 is before
    path = tmp_path / "mine.toml"
    found.write(path)
    assert device_of(path) == found
    report = sa.profile(torch.nn.Linear(8, 8), torch.ones(2, 8), device=path)
    assert report.device == found and report.seconds(found).seconds > 0
    replace(found, name="another").write(path)
    assert sa.profile(torch.nn.Linear(8, 8), torch.ones(2, 8), device=str(path)).device.name == "another"


@pytest.mark.parametrize("name", ["H100", "cpu", "RTX 4090"])
def test_known_devices_are_written_as_they_are(name: str, tmp_path: Path) -> None:
    path = tmp_path / "again.toml"
    device_of(name).write(path)
    assert device_of(path) == device_of(name)


def test_what_is_not_there_is_refused() -> None:
    for name in ("meta", "cuda:77"):
        with pytest.raises(DeviceError, match=f"no {name} on this machine"):
            measures(name)


def test_the_command_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure"]) == 0
    assert "[flops]" in capsys.readouterr().out
    path = tmp_path / "cpu.toml"
    assert main(["measure", "cpu", "--out", str(path)]) == 0 and device_of(path).type == "cpu"
    assert main(["measure", "cuda:77"]) == 2 and "no cuda:77" in capsys.readouterr().err
