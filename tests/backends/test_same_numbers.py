"""What is computed alike of many numbers is computed once for each value that they have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.backends import same_numbers

COUNT = 6


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The numbers of each call."""
    found: list[list[Any]] = []
    call = same_numbers._ForEach.__call__
    monkeypatch.setattr(same_numbers._ForEach, "__call__", lambda self, x: (found.append(list(x)), call(self, x))[1])
    return found


def step(weights: list[torch.Tensor], counters: list[torch.Tensor]) -> None:
    for counter in counters:
        counter.add_(1)
    for weight, counter in zip(weights, counters, strict=True):
        n = counter.item()
        weight.mul_(1 - 0.9**n).add_(1 / (n + 2))


def limited(weights: list[torch.Tensor], counters: list[torch.Tensor]) -> None:
    for counter in counters:
        counter.add_(1)
    for weight, counter in zip(weights, counters, strict=True):
        n = counter.item()
        weight.mul_(n * 2 + 1 if n < 6 else n - 1)


def with_others(weights: list[torch.Tensor], counters: list[torch.Tensor]) -> None:
    for counter in counters:
        counter.add_(1)
    first = counters[0].item()
    for weight, counter in zip(weights, counters, strict=True):
        n = counter.item()
        weight.mul_(n * 0.5 + 1).add_(first * n)


START: dict[str, Callable[[int], float]] = {
    "equal": lambda i: 1.0,
    "two values": lambda i: float(i % 2 + 1),
    "all differ": lambda i: float(i),
    "zeros": lambda i: -1.0,
}


@pytest.mark.parametrize("start", START)
@pytest.mark.parametrize("program", [step, limited, with_others])
def test_as_in_eager_mode(program: Any, start: str) -> None:
    def tensors() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return [torch.full((3,), i + 1.0) for i in range(COUNT)], [torch.tensor(START[start](i)) for i in range(COUNT)]

    ours, theirs, compiled = tensors(), tensors(), sa.aot_compile(program)
    for _ in range(9):
        compiled(*ours)
        program(*theirs)
        assert all(map(torch.equal, ours[0] + ours[1], theirs[0] + theirs[1]))


def test_one_call_for_all(given: list[list[Any]]) -> None:
    weights, counters = [torch.ones(3) for _ in range(COUNT)], [torch.tensor(1.0) for _ in range(COUNT)]
    compiled = sa.aot_compile(step)
    for _ in range(6):
        compiled(weights, counters)
    assert given[-1] == [7.0] * COUNT and len(compiled.recompiles) <= 2


def test_zeros_of_two_signs_and_what_is_no_number() -> None:
    copysign = same_numbers._Part(math.copysign, (1.0, None), (None, 0))
    computed = same_numbers._ForEach([[copysign]] * 4, [1])
    assert computed([0.0, -0.0, 2.0, -2.0]) == [1.0, -1.0, 1.0, -1.0]
    assert computed([-0.0] * 4) == [-1.0] * 4
    nan = float("nan")
    assert computed([nan, nan, 1.0, -1.0])[2:] == [1.0, -1.0]


def test_what_fails_fails_by_its_own() -> None:
    def check(name: str) -> Any:
        def fail(n: float) -> None:
            if n > 3:
                raise ValueError(name)

        return [same_numbers._Part(fail, (None,), (0,))]

    computed = same_numbers._ForEach([check("first"), check("second"), check("third")], [])
    assert computed([1.0, 2.0, 3.0]) == []
    with pytest.raises(ValueError, match="third"):
        computed([1.0, 2.0, 5.0])
