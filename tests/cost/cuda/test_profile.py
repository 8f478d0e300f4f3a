"""What a claim of CUDA stands for."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.cuda import profile
from subclass_aot.cost.devices import claim_of, device_of
from subclass_aot.errors import DeviceError
from tests.cost.cuda.heard import without_cuda


def test_names_of_torch_and_of_devices() -> None:
    assert claim_of(None) == (None, None)
    assert claim_of("cuda:1") == claim_of(torch.device("cuda:1")) == (torch.device("cuda:1"), None)
    assert claim_of("H100") == claim_of(device_of("H100")) == (torch.device("cuda:0"), device_of("H100"))
    assert claim_of("cpu") == (torch.device("cpu"), None)
    assert claim_of(device_of("cpu")) == (torch.device("cpu"), device_of("cpu"))
    with pytest.raises(DeviceError, match="no device 'G5'"), sa.meta("G5"):
        pass


@without_cuda
def test_a_plain_claim_is_one_of_an_h100() -> None:
    with sa.meta("RTX 4090"):
        assert profile().name == "RTX 4090"
    assert profile().name == "RTX 4090"  # a backward after the block
    with sa.meta("cuda:0"):
        assert profile().name == "H100 SXM" and torch.cuda.get_device_capability() == (9, 0)
    with sa.meta("A100"):
        with sa.meta("cuda:0"):  # as the modules of a model that claims it
            assert profile().name == "A100 SXM 80GB" and torch.cuda.get_device_capability() == (8, 0)
        with sa.meta("H100"):
            assert profile().name == "H100 SXM"
        assert profile().name == "A100 SXM 80GB" and torch.cuda.get_device_capability() == (8, 0)


def test_tensors_claim_the_device_of_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        (Path(sa.__file__).parent / "cost" / "devices" / "a100.toml").read_text().replace("A100 SXM 80GB", "Mine")
    )
    for device in ("H100", device_of("A100"), str(path)):
        with sa.meta(device):
            x = torch.ones(3)
        assert x.device == torch.device("cuda:0") and x.is_cuda and x.get_device() == 0
    with sa.meta(str(path)):
        assert profile().name == "Mine"
    with sa.meta("cuda:3"):
        assert torch.ones(3).get_device() == 3 and not torch.ones(3, device="cpu").is_cuda
    with sa.meta(device_of("cpu")):
        assert torch.ones(3).device == torch.device("cpu") and torch.ones(3).get_device() == -1


def test_modules_claim_a_profile() -> None:
    twin = sa.to_meta(nn.Linear(3, 5), "A100")
    assert twin.weight.device == torch.device("cuda:0") and twin.weight.is_cuda
    for module in (twin, copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))):
        assert module(twin.weight.new_empty(2, 3)).device == torch.device("cuda:0")
    assert copy.deepcopy(device_of("A100")) == device_of("A100")


def test_tensors_on_two_devices_are_an_error() -> None:
    with sa.meta("H100"):
        x, there = torch.ones(3, 3), torch.ones(3, 3, device="cpu")
        assert (x * torch.tensor(2.0, device="cpu")).is_cuda and x.where(x > 0, torch.tensor(1.0, device="cpu")).is_cuda
        assert x[torch.tensor([0, 2], device="cpu")].shape == (2, 3)
        x[torch.tensor([0, 2], device="cpu")] = 1
        assert x.copy_(there).is_cuda and not there.copy_(x).is_cuda and (x + there.cuda()).is_cuda
        for wrong in (lambda: x + there, lambda: x @ there, lambda: torch.cat([x, there]), lambda: x + x.to("cuda:1")):
            with pytest.raises(
                RuntimeError, match=r"Expected all tensors to be on the same device(.|\n)*x.to\(cuda:0\)"
            ):
                wrong()
