"""Costs as functions of a size: what they say of a size is what a run at that size says."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling import Report
from subclass_aot.errors import ProfileError


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


def profiled(batch: int, length: int, **options: object) -> Report:
    report: Report = sa.profile(encoder(), torch.empty(batch, length, 64), optimizer=torch.optim.AdamW, **options)
    return report


@pytest.mark.parametrize("batch", [1, 5, 64, 1000])
def test_a_batch_costs_what_its_own_run_says(batch: int) -> None:
    formula, own = profiled(8, 32).formula(), profiled(batch, 32)
    assert formula.is_exact
    assert formula.peak(batch) == pytest.approx(own.peak, rel=0.001) and formula.flops(batch) == own.flops()


@pytest.mark.parametrize("length", [3, 100, 2000])
def test_a_length_costs_what_its_own_run_says(length: int) -> None:
    formula, own = profiled(2, 32).formula("S"), profiled(2, length)
    assert formula.is_exact
    assert formula.peak(length) == pytest.approx(own.peak, rel=0.001) and formula.flops(length) == own.flops()
    assert "*S^2" in str(formula)


@pytest.mark.parametrize("memory", ["100MiB", "1GiB", 10**10])
def test_the_largest_batch_fits_and_one_more_does_not(memory: str | int) -> None:
    report = profiled(8, 32, device="H100")
    largest = report.largest_batch(memory)
    there = {"100MiB": 100 << 20, "1GiB": 1 << 30}.get(str(memory), memory)
    assert profiled(largest, 32, device="H100").peak <= int(there) < profiled(largest + 1, 32, device="H100").peak


def test_what_reductions_take_on_a_gpu_comes_with_larger_sizes() -> None:
    """The formula leaves it out, and the largest batch is found in a few runs."""

    def step(model: nn.Module, x: torch.Tensor) -> None:
        model(x).square().mean().backward()

    with sa.meta():
        model, x = (
            nn.Sequential(*[nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048)) for _ in range(3)]),
            torch.empty(64, 2048),
        )
    report = sa.profile(step, model, x, device="H100")
    formula = report.formula()
    largest = formula.largest(4 << 30)
    runs = [formula.runs[n].peak for n in (largest, largest + 1)]
    assert formula.is_exact and runs[0] <= 4 << 30 < runs[1] and len(formula.runs) < 12
    assert 0 < runs[0] - formula.peak(largest) < 2**28


def test_programs_that_do_other_things_at_other_sizes_are_searched() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.exp() for part in x.split(10)])

    report = sa.profile(program, torch.empty(8, 100))
    formula = report.formula()
    assert not formula.is_exact and "different things" in str(formula)
    largest = report.largest_batch("1MiB")
    assert formula.peak(largest) <= 1 << 20 < formula.peak(largest + 1)


def test_what_has_no_size_is_refused() -> None:
    with pytest.raises(ProfileError, match="pass the data as tensors"):
        sa.profile(lambda: torch.ones(3).exp()).formula()
    with sa.profile(nn.Linear(2, 2)) as block:
        torch.ones(3).exp()
    with pytest.raises(ProfileError, match="profile a function"):
        block.formula()
    with pytest.raises(ProfileError, match="how much memory"):
        profiled(2, 4).largest_batch()
    with pytest.raises(ProfileError, match="does not depend on B"):
        sa.profile(lambda x: None, torch.empty(1, 0)).formula().largest(100)


def test_a_largest_batch_that_no_run_has_tried_says_so() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.shape[0] < 100 or x.sum() > 0 else x

    report = sa.profile(program, torch.empty(2, 16))
    found = report.largest_batch("1MiB")
    assert found == 1 << 13 and found.untried and "no run has tried it: aten._local_scalar_dense" in str(found)
    tried = sa.profile(torch.exp, torch.empty(2, 16)).largest_batch("1MiB")
    assert not tried.untried and str(tried) == f"{tried:d}"


def test_too_little_memory_has_no_batch() -> None:
    assert profiled(2, 4).largest_batch(1000) == 0


@pytest.mark.parametrize("letter", ["B", "S"])
def test_masks_that_a_program_reads_are_known_at_all_sizes(letter: str) -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.exp() if bool(mask.all()) else x

    report = sa.profile(program, torch.empty(2, 16, 4), torch.ones(2, 16, dtype=torch.int64))
    size = (100, 16, 4) if letter == "B" else (2, 100, 4)
    own = sa.profile(program, torch.empty(size), torch.ones(size[:2], dtype=torch.int64))
    assert report.formula(letter).peak(100) == own.peak > 2 * 4 * 4 * 200  # input, and result
    assert report.formula("B").largest(1 << 30) > 100_000  # of which no run knows the mask
