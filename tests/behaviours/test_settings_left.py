"""Functions that leave settings of torch otherwise than they were: they run themselves, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import LastingChangeError

Setting = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]

SETTINGS: dict[str, Setting] = {
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.get_deterministic_debug_mode,
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        torch.get_float32_matmul_precision,
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "anomaly": (
        lambda: torch.autograd.set_detect_anomaly(True),
        torch.is_anomaly_enabled,
        lambda: torch.autograd.set_detect_anomaly(False),
    ),
    "autocast": (
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.is_autocast_enabled("cpu"),
        lambda: torch.set_autocast_enabled("cpu", False),
    ),
    "device": (
        lambda: torch.set_default_device("meta"),
        lambda: torch.get_default_device().type,
        lambda: torch.set_default_device(None),
    ),
    "fill": (
        lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", True),
    ),
    "attention": (
        lambda: torch.backends.cuda.enable_math_sdp(False),
        torch.backends.cuda.math_sdp_enabled,
        lambda: torch.backends.cuda.enable_math_sdp(True),
    ),
    "threads": (lambda: torch.set_num_threads(2), torch.get_num_threads, lambda: torch.set_num_threads(1)),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:.*matmul")
@pytest.mark.parametrize("name", SETTINGS)
def test_each_call_leaves_them_as_eager_mode_does(name: str) -> None:
    change, read, put_back = SETTINGS[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        change()
        return y

    compiled, x = sa.aot_compile(program), torch.ones(3)
    before = read()
    try:
        change()
        expected = read()
        put_back()
        assert read() == before != expected
        assert torch.equal(compiled(x), x * 2)  # from the next call on it might be so
        for warned in (pytest.warns(UserWarning, match="leaves a setting of torch"), nullcontext()):
            assert read() == expected
            put_back()
            with warned:
                assert torch.equal(compiled(x), x * 2)
        assert read() == expected
        put_back()
        with pytest.raises(LastingChangeError, match="leaves a setting"):
            sa.trace_joint(program, x)
    finally:
        put_back()


def test_what_is_put_back_is_compiled() -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("cpu"):
            y = x @ x
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        z = y * 2
        torch.set_float32_matmul_precision(before)
        return z

    compiled, x = sa.aot_compile(program), torch.ones(3, 3)
    for _ in range(2):
        assert torch.equal(compiled(x), program(x))
    assert compiled.source.startswith("def call")
