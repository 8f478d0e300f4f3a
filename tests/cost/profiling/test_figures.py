"""A report is its figures, and what can be made of them."""

from __future__ import annotations

import dataclasses
import pickle

import torch

import subclass_aot as sa
from subclass_aot.cost.profiling import report
from subclass_aot.cost.profiling.figures import Figures, Moment, WrapperBytes


def test_figures_say_what_the_report_says() -> None:
    found = sa.profile(torch.nn.Linear(8, 4), torch.empty(2, 8))
    alone = Figures(**{field.name: getattr(found, field.name) for field in dataclasses.fields(Figures)})
    assert alone.peak == found.peak and alone.owners() == found.owners() and alone.flops() == found.flops()
    assert isinstance(alone.peak_at, Moment) and str(alone.peak_at) == str(found.peak_at)
    assert not hasattr(alone, "plot") and str(found).startswith(found.device.name if found.device else "")


def test_a_report_that_was_pickled_before_they_were_apart_loads() -> None:
    """Protocol 0 has names as text: those parts stood in `report.py`."""
    made = pickle.dumps(WrapperBytes("w", "Int8Weight", 8, 4), protocol=0)
    before = made.replace(b"subclass_aot.cost.profiling.figures", b"subclass_aot.cost.profiling.report")
    assert before != made and pickle.loads(before) == WrapperBytes("w", "Int8Weight", 8, 4)
    assert report.Moment is Moment
