"""Reads of values that nobody knows, in runs without data: refused, or assumed and listed."""

from __future__ import annotations

import inspect
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
    "different rows": (lambda: tuple(torch.unique(x(7, 2), dim=0).shape), (7, 2)),
    "each once": (lambda: tuple(torch.repeat_interleave(x(3, 2), x(3).long(), 0).shape), (3, 2)),
    "as many in each bin": (lambda: torch.bincount(x(11).long(), minlength=4).tolist(), [3, 3, 3, 2]),
    "a loss": (lambda: x(3).mean().item(), 2.0),
    "a number in a text": (lambda: f"{x(3).mean():.1f}", "2.0"),
    "an array": (lambda: x(2).numpy().tolist(), [2.0, 2.0]),
    "a list": (lambda: x(2, 1).tolist(), [[2.0], [2.0]]),
    "full lengths": (
        lambda: tuple(nn.utils.rnn.pack_padded_sequence(x(5, 3, 2), x(3).long(), enforce_sorted=False).data.shape),
        (15, 2),
    ),
    "one element of a mask": (lambda: bool(x(3).bool()[0]), True),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", READS)
def test_what_is_assumed(name: str) -> None:
    program, expected = READS[name]
    with pytest.raises(DataDependentError) as error, sa.meta():
        program()
    assert "assume={'test_assumptions.py:" in str(error.value) and "assume=True" in str(error.value)
    with sa.meta(assume=True) as assumed:
        assert program() == expected
    assert len(assumed) == 1
    assert f"{__file__}:" in str(assumed)


def test_lengths_of_a_loss() -> None:
    """Of the outputs and of the targets, which lie in rows or one after the other."""
    for size, each in (((4, 6), 6), ((20,), 5)):
        with sa.meta(assume=True) as assumed:
            lengths = x(4).long(), x(4).long()
            loss = nn.functional.ctc_loss(x(9, 4, 7).log_softmax(-1), torch.ones(size, dtype=torch.long), *lengths)
        assert loss.shape == ()
        assert [(each.answer, each.last[1]) for each in assumed] == [(9, each)]


def test_a_number_is_smaller_each_time() -> None:
    """So a loop makes progress, and no number is too small."""
    with sa.meta(assume=True) as assumed:
        numbers = [x(3).mean().item() for _ in range(50)]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) == 50 and numbers[-1] > 1
    assert "is 2.0, 50 times, 1.02 at last" in str(assumed)


def test_a_loop_over_fewer_and_fewer_rows_ends() -> None:
    rows = 0
    with sa.meta(assume=True, fraction=0.5):
        order = x(5000).argsort()
        while order.numel() > 0:
            order = order[1:][x(order.numel() - 1) > 0]
            rows += 1
    assert rows == 13


def test_what_a_line_of_a_library_reads_is_given() -> None:
    lines, first = inspect.getsourcelines(torch.optim.LBFGS.step)
    line = first + next(i for i, text in enumerate(lines) if text.strip().startswith("opt_cond = flat_grad")) + 3
    layer = nn.Linear(3, 3)

    def step(optimizer: torch.optim.LBFGS, layer: nn.Module, x: torch.Tensor) -> int:
        def closure() -> torch.Tensor:
            loss = layer(x).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return optimizer.state_dict()["state"][0]["n_iter"]  # type: ignore[no-any-return]

    found = []
    for assume in (True, {f"lbfgs.py:{line}": True}):
        optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=5)
        report = sa.profile(lambda *args: found.append(step(*args)), optimizer, layer, x(2, 3), assume=assume)
        assert report.assumed
    assert found == [5, 0]


def test_an_integer_that_nobody_knows_is_refused() -> None:
    with sa.meta(assume=True), pytest.raises(DataDependentError, match="a number .int64.") as error:
        x(3).long().sum().item()
    assert "assume={'test_assumptions.py:" in str(error.value) and "assume=True" not in str(error.value)


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
