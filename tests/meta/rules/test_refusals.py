"""Sizes that kernels refuse: on a device that is not there, too, where no kernel can be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa

aten = torch.ops.aten


def places(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64)


CALLS: dict[str, Callable[[], Any]] = {
    "part": lambda: torch.zeros(4, 4).select_scatter(torch.zeros(3), 0, 0),
    "slice": lambda: torch.slice_scatter(torch.zeros(4, 4), torch.zeros(4, 4), 0, 0, 2),
    "diagonal": lambda: torch.zeros(4, 4).diagonal_scatter(torch.zeros(3)),
    "rows": lambda: torch.zeros(4, 4).index_add(0, places(4), torch.zeros(4, 2)),
    "indices": lambda: torch.zeros(4, 4).index_reduce(0, places(3), torch.zeros(4, 4), "amax"),
    "values": lambda: torch.zeros(4, 4).index_put((places(4),), torch.zeros(3, 3)),
    "put": lambda: torch.zeros(4, 4).put(places(3), torch.zeros(4)),
    "bias": lambda: torch.addmm(torch.zeros(2, 4, 4), torch.zeros(4, 4), torch.zeros(4, 4)),
    "gradient": lambda: aten._softmax_backward_data(torch.zeros(3), torch.zeros(4), 0, torch.float32),
    "draws": lambda: torch.multinomial(torch.ones(4), 5),
    "no draws": lambda: torch.multinomial(torch.ones(4), 0),
    "bins": lambda: torch.histogramdd(torch.zeros(4, 2), [3, 3, 3]),
    "least squares": lambda: torch.linalg.lstsq(torch.zeros(4), torch.zeros(4)),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", CALLS)
def test_what_is_refused(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        CALLS[name]()
    for device in ("cpu", "H100"):
        with sa.meta(device), pytest.raises((RuntimeError, IndexError)) as caught:
            CALLS[name]()
        assert type(caught.value) is type(expected.value), device


def test_what_is_taken() -> None:
    with sa.meta("H100"):
        assert torch.zeros(4, 4).index_put((places(3),), torch.zeros(1, 1, 4)).shape == (4, 4)
        assert torch.zeros(4, 4).put(places(3), torch.zeros(3)).shape == (4, 4)
        assert torch.multinomial(torch.ones(4), 5, replacement=True).shape == (5,)
        assert torch.zeros(()).index_add(0, places(1), torch.zeros(())).shape == ()
