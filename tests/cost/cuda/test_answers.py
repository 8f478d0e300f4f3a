"""`torch.cuda` of a device that is not there."""

from __future__ import annotations

import threading

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base._torch.cuda import has_no_cuda
from subclass_aot.cost.devices import device_of


def test_answers_are_those_of_the_profile() -> None:
    before = torch.cuda.is_available(), torch.cuda.get_device_capability
    with sa.meta("RTX 4090"):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
        assert torch.cuda.get_device_name() == "NVIDIA GeForce RTX 4090" and torch.cuda.is_bf16_supported()
        assert torch.cuda.get_device_capability(torch.device("cuda:0")) == (8, 9)
        found = torch.cuda.get_device_properties("cuda")
        assert (found.major, found.minor, found.multi_processor_count) == (8, 9, 128)
        assert found.total_memory == device_of("RTX 4090").memory and "RTX 4090" in repr(found)
        assert torch.cuda.mem_get_info() == (found.total_memory,) * 2 and torch.cuda.memory_allocated() == 0
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.manual_seed(1)
        with pytest.raises(AttributeError, match="profile of NVIDIA GeForce RTX 4090 does not say `L2_cache_size`"):
            found.L2_cache_size  # noqa: B018
    assert (torch.cuda.is_available(), torch.cuda.get_device_capability) == before


def test_the_current_device() -> None:
    with sa.meta("cuda:2"):
        if not has_no_cuda():
            return
        assert torch.cuda.current_device() == 2
        with torch.cuda.device(1):
            assert torch.cuda.current_device() == 1
        assert torch.cuda.current_device() == 2
        torch.cuda.set_device("cuda:3")
        assert torch.cuda.current_device() == 3


def test_other_threads_and_other_claims_hear_nothing_of_it() -> None:
    there = torch.cuda.is_available()
    found = []
    with sa.meta("H100"):
        thread = threading.Thread(target=lambda: found.append(torch.cuda.is_available()))
        thread.start()
        thread.join()
    with sa.meta("cpu"):
        found.append(torch.cuda.is_available())
    assert found == [there, there]
