"""The table of exponents: sizes, fits, and what is said to be superlinear."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from benchmarks.growth import __main__ as page
from benchmarks.growth import measure, subjects
from benchmarks.growth.measure import AOT, DYNAMO, OURS, Allowed, Measured, fit, sizes_of
from benchmarks.growth.subjects import SUBJECTS, Program, Subject

TINY = Allowed(seconds=0.0, most_rounds=1)


def grown(exponent: float, calls: float = 1.0) -> Measured:
    """What takes a time of that exponent, in two rounds."""
    sizes = (1, 2, 4, 8)
    found = Measured()
    found.seconds["first"] = {n: [n**exponent, 2 * n**exponent] for n in sizes}
    found.calls["first"] = {n: round(1000 * n**calls) for n in sizes[-2:]}
    return found


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_an_exponent_is_fitted(exponent: float) -> None:
    assert math.isclose(fit({n: 3 * n**exponent for n in (2, 4, 8)}), exponent)
    found = grown(exponent).exponent("first")
    assert found is not None and all(math.isclose(x, exponent) for x in (found.median, found.low, found.high))


def test_small_sizes_do_not_count() -> None:
    found = grown(1.0)
    found.seconds["first"][1] = [100.0, 100.0]
    exponent = found.exponent("first")
    assert exponent is not None and math.isclose(exponent.median, 1.0)


def test_one_size_has_no_exponent() -> None:
    found = Measured()
    found.seconds["first"] = {8: [1.0]}
    assert found.exponent("first") is None and found.exponent("hit") is None and found.exponent_of_calls("hit") is None


def test_sizes_double() -> None:
    assert sizes_of(Subject("layer", 80, subjects._vit)) == (10, 20, 40, 80)


def test_what_is_superlinear_is_said() -> None:
    rows = {
        "linear": {OURS: grown(1.0)},
        "by time": {OURS: grown(1.3)},
        "by calls": {OURS: grown(1.0, 1.3)},
        "torch": {OURS: grown(0.9), AOT: grown(2.0)},
    }
    assert page.superlinear(rows) == ["by time, first", "by calls, first"]
    lines = list(page.page(rows))
    assert "by time, first; by calls, first" in lines[2] and "commit" in lines[0] and torch.__version__ in lines[0]
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_in_noise_nothing_is_superlinear() -> None:
    noisy = grown(1.0)
    noisy.seconds["first"][8] = [8 * 1.6, 16.0]
    assert page.superlinear({"noisy": {OURS: noisy}}) == []


def test_a_side_of_torch_stops_where_it_takes_too_long_and_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(side: str, program: Program, size: int, measured: Measured) -> None:
        if side == AOT:
            raise RuntimeError("not here")
        for kind in measure.KINDS:
            measured.seconds[kind].setdefault(size, []).append(float(size))

    monkeypatch.setattr(measure, "_once", once)
    monkeypatch.setattr(measure, "_count", lambda *_: None)
    found = measure.measure(Subject("operator", 8, subjects._operators), Allowed(patience=3.0))
    assert list(found[OURS].seconds["first"]) == [1, 2, 4, 8] and list(found[DYNAMO].seconds["first"]) == [1, 2, 4]
    assert found[AOT].error == "RuntimeError" and not found[AOT].seconds["first"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_subject_grows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is our side alone: torch's takes seconds."""
    monkeypatch.setattr(measure, "SIZES", 2)
    few = Subject("", 2, SUBJECTS[name].make, with_torch=False)
    found: Any = measure.measure(few, TINY)[OURS]
    has_others = few.make(2).others is not None
    assert list(found.seconds["first"]) == list(found.seconds["hit"]) == [1, 2]
    assert bool(found.seconds["second"]) is has_others
    # Of numbers in a dict the program reads one.
    assert (found.calls["first"][2] > found.calls["first"][1]) is (name != "numbers in a dict")
