"""What the elements of results are likely to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import DataDependentError


def x(*size: int) -> torch.Tensor:
    return torch.randn(size)


READS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a guard": (lambda: bool(x(3).norm() > 1e-10), True),
    "a tolerance": (lambda: bool(x(3).norm() < 1e-10), False),
    "the largest is": (lambda: x(5).argmax().item(), 0),
    "the order": (lambda: x(5).argsort(descending=True).tolist(), [0] * 5),
    "of the largest": (lambda: x(5, 7).topk(2)[1].flatten()[3].item(), 0),
    "a cell of the largest": (lambda: (x(5, 7).max(1)[1] // 3)[2].item(), 0),
    "drawn": (lambda: torch.multinomial(x(3, 5).softmax(1), 1).tolist(), [[0], [0], [0]]),
    "experts": (lambda: x(6, 4).topk(2)[1].unique().tolist(), [0] * 12),
    "joined": (lambda: torch.cat([x(3).argmax().view(1), x(3).argmax().view(1)]).tolist(), [0, 0]),
    "larger than what is none": (lambda: bool((x(3) > torch.full((3,), -1e9)).any()), True),
    "larger than a negative one": (lambda: bool(x(3).sum() > -1.0), False),
    "chosen": (lambda: bool((x(3) > torch.where(x(3) == 2, x(3), -1e9)).any()), True),
    "a check of two comparisons": (lambda: bool(((x(3) == 0) | (x(3) == 1)).all()), True),
    "gathered flags": (lambda: bool((torch.zeros(3, dtype=torch.bool) | (x(3) == 1)).all()), False),
    "of which some count": (
        lambda: bool(((torch.zeros(3, dtype=torch.bool) | (x(3) == 1)) & torch.tensor([True, False, True])).any()),
        False,
    ),
    "words that are allowed": (lambda: bool(torch.isin(x(3).argsort(), torch.arange(9)).all()), True),
    "parts": (lambda: [bool(each) for each in (x(2) > 0).all(0, keepdim=True).unbind()], [True]),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_likely(name: str) -> None:
    program, expected = READS[name]
    with sa.meta(assume=True):
        assert program() == expected


def test_positions_are_not_counted() -> None:
    with sa.meta(assume=True), pytest.raises(DataDependentError):
        x(3, 4).argmax(1).sum().item()


def test_gradients_are_finite() -> None:
    layer, scaler = torch.nn.Linear(3, 2), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(layer.parameters(), momentum=0.9)

    def step(layer: Any, optimizer: Any, scaler: Any, x: torch.Tensor) -> None:
        scaler.scale(layer(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    with pytest.raises(DataDependentError, match="scaler.step"):
        sa.profile(step, layer, optimizer, scaler, x(4, 3))
    report = sa.profile(step, layer, optimizer, scaler, x(4, 3), assume=True)
    assert report.optimizer_state == report.parameters + 8  # so the step was made; the scale is on top
    assert [each.split(":")[0] for each in report.assumed] == ["a number (float32) is 0.0"]
