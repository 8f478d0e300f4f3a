"""Reads of values that nobody knows, in runs without data: refused, or assumed and listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.errors import DataDependentError, TraceError


def x(*size: int) -> torch.Tensor:
    return torch.randn(size)


class Checked(nn.Module):
    """Refuses values that are not finite, and drops rows that are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.isfinite(value).all():
            raise ValueError("not finite")
        if (mask == 0).any():
            value = value * mask.unsqueeze(-1)
        return self.layer(value[mask.bool()])  # type: ignore[no-any-return]


READS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a check of all": (lambda: bool((x(3) > 0).all()), True),
    "a check of none": (lambda: bool(torch.isnan(x(3)).any()), False),
    "not all": (lambda: bool(~(x(3) > 0).all()), False),
    "not any": (lambda: bool((x(3) != 0).any().logical_not()), True),
    "a comparison": (lambda: bool(x(3).sum() > 0), False),
    "two comparisons": (lambda: bool((x(3).sum() > 0) | (x(3).sum() < 0)), False),
    "two checks": (lambda: bool(torch.isfinite(x(3)).all() & torch.isfinite(x(2)).all()), True),
    "equal tensors": (lambda: torch.equal(x(3), x(3)), True),
    "close tensors": (lambda: torch.allclose(x(3), x(3)), True),
    "a mask": (lambda: tuple(x(4, 5)[x(4) > 0].shape), (4, 5)),
    "a mask of all dims": (lambda: tuple(torch.masked_select(x(4, 5), x(4, 5) > 0).shape), (20,)),
    "positions": (lambda: tuple(torch.nonzero(x(4, 5)).shape), (20, 2)),
    "positions of each dim": (lambda: [tuple(i.shape) for i in torch.where(x(4, 5) > 0)], [(20,), (20,)]),
    "different elements": (lambda: tuple(torch.unique(x(4, 5)).shape), (20,)),
    "where they are, and how many": (
        lambda: [tuple(y.shape) for y in torch.unique(x(4, 5), return_inverse=True, return_counts=True)],
        [(20,), (4, 5), (20,)],
    ),
    "runs of one element": (lambda: tuple(torch.unique_consecutive(x(7)).shape), (7,)),
    "how many": (lambda: int((x(7) != 0).sum()), 7),
    "how many ones": (lambda: (x(2, 7) > 0).int().sum().item(), 14),
    "how many in a row": (lambda: (x(2, 7) > 0).sum(-1)[0].item(), 7),
    "one element of a mask": (lambda: bool(x(3).bool()[0]), True),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", READS)
def test_what_is_assumed(name: str) -> None:
    program, expected = READS[name]
    with pytest.raises(DataDependentError) as error, sa.meta():
        program()
    assert any("sa" in note or "assume" in note for note in error.value.__notes__)
    with sa.meta(assume=True) as assumed:
        assert program() == expected
    assert len(assumed) == 1
    assert f"{__file__}:" in str(assumed)


def test_a_number_that_nobody_knows_is_refused() -> None:
    with sa.meta(assume=True), pytest.raises(DataDependentError):
        x(3).sum().item()


def test_a_fraction_of_the_rows() -> None:
    with sa.meta(assume=True, fraction=0.5) as assumed:
        assert x(5, 2)[x(5) > 0].shape == (3, 2)
        assert int((x(8) > 0).sum()) == 4
    assert [each.answer for each in assumed] == [3, 4]


@pytest.mark.parametrize("fraction", [-0.1, 1.5])
def test_a_fraction_is_part_of_one(fraction: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"), sa.meta(assume=True, fraction=fraction):
        pass


def test_what_one_line_reads_is_given() -> None:
    line = test_what_one_line_reads_is_given.__code__.co_firstlineno + 3
    with sa.meta(assume={f"test_assumptions.py:{line}": 7}):
        assert (x(3).sum().item(), bool((x(3) > 0).any())) == (7, True)


def test_a_loop_that_waits_for_a_value_ends_with_an_error() -> None:
    with sa.meta(assume=True), pytest.raises(TraceError) as error:
        while not (x(3) > 0).any():
            pass
    assert "1000 times" in str(error.value)
    assert "sa.meta(assume={'test_assumptions.py:" in str(error.value)


@pytest.mark.parametrize("device", [None, "cuda:0"])
def test_a_model_that_checks_its_arguments(device: str | None) -> None:
    """Forward and backward, and what was assumed is listed."""
    model = sa.to_meta(Checked(), device)
    value, mask = sa.MetaTensor(torch.empty(10**9, 3, device="meta")), sa.MetaTensor(torch.empty(10**9, device="meta"))
    with sa.meta(device, assume=True, fraction=0.25) as assumed:
        result = model(value, mask)
        result.sum().backward()
    assert result.shape == (250_000_000, 4)
    assert type(model.layer.weight.grad) is sa.MetaTensor
    assert [each.answer for each in assumed] == [True, False, 250_000_000]
    with pytest.raises(DataDependentError), sa.meta(device):  # of the block before nothing is assumed
        model(value, mask)


def test_blocks_in_one_another() -> None:
    with sa.meta():
        with sa.meta(assume=True):
            assert bool(torch.isfinite(x(3)).all())
        with pytest.raises(DataDependentError):
            bool(torch.isfinite(x(3)).all())


def test_a_comparison_that_is_written_is_a_mask() -> None:
    """What was known of it before the write says nothing."""

    def program() -> list[bool]:
        flags = x(3) > 0
        before = bool(flags.any())
        view = flags[:2]
        view.fill_(True)
        return [before, bool(flags.any()), bool((x(3) > 0).logical_or_(x(3) > 1).any())]

    with sa.meta(assume=True):
        assert program() == [False, True, True]


@pytest.mark.parametrize("assume", [None, 1, "model.py:12"])
def test_what_is_assumed_is_named_by_lines(assume: Any) -> None:
    with pytest.raises(TypeError, match="model.py:12"), sa.meta(assume=assume):
        pass


def test_a_fraction_of_what_is_not_assumed_is_refused() -> None:
    with pytest.raises(ValueError, match="assume=True"), sa.meta(fraction=0.5):
        pass
