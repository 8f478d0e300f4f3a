"""Which settings a block is seen to read."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from subclass_aot.base import _torch
from subclass_aot.engine.trace.settings import settings_noted


def test_what_the_program_reads() -> None:
    backends: Any = torch.backends
    with settings_noted() as found, settings_noted() as inside, _torch.stand_ins.stand_ins():
        assert torch.get_num_threads() == 1 and torch.get_autocast_dtype("cpu") is torch.bfloat16
        backends.cudnn.enabled, backends.cuda.matmul.allow_tf32, backends.mkldnn.matmul.fp32_precision  # noqa: B018
        backends.fp32_precision, backends.quantized.engine, backends.quantized.supported_engines  # noqa: B018
        torch.nn.functional.batch_norm(torch.ones(2, 1), None, None, training=True)  # torch reads for itself
        thread = threading.Thread(target=torch.backends.cuda.flash_sdp_enabled)
        thread.start(), thread.join()
    assert list(found) == list(inside) == [
        "torch.get_num_threads()", "torch.get_autocast_dtype('cpu')", "torch.backends.cudnn.enabled",
        "torch.backends.cuda.matmul.allow_tf32", "torch.backends.mkldnn.matmul.fp32_precision",
        "torch.backends.fp32_precision", "torch.backends.quantized.engine",
    ]  # fmt: skip
    assert all(_torch.flags.read(setting) is not None for setting in found)
    torch.get_num_threads()
    assert len(found) == 7


def test_an_error_ends_it() -> None:
    before = torch.get_num_threads
    with pytest.raises(ZeroDivisionError), settings_noted() as found, _torch.stand_ins.stand_ins():
        assert torch.get_num_threads is not before
        1 / 0  # noqa: B018
    assert torch.get_num_threads is before
    torch.get_num_threads()
    assert not found and not _torch.flags.noted
    assert _torch.flags.by_function[id(before)] == "torch.get_num_threads()"
