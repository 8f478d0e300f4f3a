"""Constants that are too long to be kept are known where each element is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.cost.without_data.fills import MOST_MADE, is_fill
from subclass_aot.errors import DataDependentError

LONG = 10**8

KNOWN: dict[str, tuple[Callable[[], Any], Any]] = {
    "a full mask": (lambda: bool(torch.ones(LONG, dtype=torch.bool).all()), True),
    "how many": (lambda: torch.ones(LONG, dtype=torch.bool).sum().item(), LONG),
    "in each row": (lambda: torch.ones(10**5, 10**3).sum(1)[5].item(), 1000),
    "zeros": (lambda: bool(torch.zeros(LONG).any()), False),
    "a number": (lambda: torch.full((LONG,), 2.5).max().item(), 2.5),
    "compared": (lambda: bool((torch.full((LONG,), 7) == 7).all()), True),
    "computed": (lambda: (torch.ones(10**4, 10**4) * 2 - torch.ones(10**4, 1))[3, 4].item(), 1.0),
    "converted": (lambda: bool((1.0 - torch.ones(LONG).to(torch.bfloat16)).bool().any()), False),
    "like what is not known": (lambda: bool(torch.ones_like(torch.randn(LONG), dtype=torch.bool).all()), True),
    "like a short one": (lambda: torch.zeros_like(torch.randn(3)).tolist(), [0, 0, 0]),
    "new": (lambda: torch.randn(3).new_full((LONG,), 4)[-1].item(), 4),
    "written": (lambda: torch.empty(LONG).fill_(3)[2].item(), 3),
    "written again": (lambda: torch.ones(LONG).mul_(3).add_(1)[2].item(), 4),
    "cleared": (lambda: torch.randn(LONG).zero_()[2].item(), 0),
    "positions": (lambda: tuple(torch.ones(LONG).nonzero().shape), (LONG, 1)),
    "no positions": (lambda: tuple(torch.zeros(LONG).nonzero().shape), (0, 1)),
    "rows": (lambda: tuple(torch.randn(LONG, 2)[torch.ones(LONG, dtype=torch.bool)].shape), (LONG, 2)),
    "a part": (lambda: torch.ones(LONG).view(10**4, 10**4).mT[5:15, :10].cumsum(1)[0].tolist(), [*range(1, 11)]),
    "by strides": (lambda: torch.ones(10**4, 10**4).as_strided((100, 5), (7, 3))[5].tolist(), [1.0] * 5),
    "of 64 channels, as they lie": (
        lambda: torch.ones(64, 2048, 1, 1).as_strided((64, 2048), (2048, 1))[3, 4].item(),
        1,
    ),
    "a product of matrices": (
        lambda: bool((torch.zeros(2, 300, 4, 256).transpose(1, 2).reshape(8, 300, 256) == 0).all()),
        True,
    ),
    "a copy": (lambda: torch.ones(LONG)[5:].clone().contiguous()[0].item(), 1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known(name: str) -> None:
    program, expected = KNOWN[name]
    with sa.meta():
        assert program() == program() == expected


def some_written() -> Any:
    mask = torch.ones(LONG, dtype=torch.bool)
    mask[5:] = False
    return mask.all()


def one_written() -> Any:
    mask = torch.ones(LONG, dtype=torch.bool)
    mask[5].fill_(False)
    return mask[0]


def written_by_what_is_not_known() -> Any:
    x = torch.ones(LONG)
    part = x[:10]
    x.add_(torch.randn(LONG))
    return part[0]


def added() -> Any:
    return torch.ones(LONG).cumsum(0)[0]


@pytest.mark.parametrize("program", [some_written, one_written, written_by_what_is_not_known, added])
def test_what_is_not_known(program: Callable[[], Any]) -> None:
    with sa.meta(), pytest.raises(DataDependentError):
        program().item()


def test_a_short_constant_is_written_in_its_parts() -> None:
    with sa.meta():
        flags = torch.ones(6, dtype=torch.bool)
        flags[2:4] = False
        assert flags.tolist() == [True, True, False, False, True, True]
        x = torch.randn(4)
        view = x.view(2, 2)
        view.zero_()
        x.fill_(1)
        assert x.tolist() == [1, 1, 1, 1]


def test_a_fill_is_one_element() -> None:
    assert is_fill(torch.ones(()).expand(3)) and not is_fill(torch.ones(1)) and not is_fill(torch.ones(MOST_MADE))
