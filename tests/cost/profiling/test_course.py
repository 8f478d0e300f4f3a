"""Where the moments of a run are on the axis of a picture."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.cost.devices import device_of
from subclass_aot.cost.profiling import Report
from subclass_aot.cost.profiling.course import Course, over_bytes, over_time, rows_by_kind, seen

SLOW = replace(device_of("cpu"), flops={"float32": 1e6}, bandwidth=1e6, launch=1e-3)


def steps(layers: nn.ModuleList, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    for _ in range(2):
        y = x
        for layer in layers:
            y = checkpoint(layer, y, use_reentrant=False)
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def checkpointed() -> Report:
    layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))
    return sa.profile(steps, layers, torch.optim.AdamW(layers.parameters()), torch.randn(8, 16), device="H100")


def both(report: Report) -> list[Course]:
    assert report.device is not None
    return [over_bytes(report.timeline), over_time(report.timeline, report.device)]


def test_rows_add_up_to_the_curve() -> None:
    found = checkpointed()
    rows = rows_by_kind(found.timeline)
    assert [sum(moment) for moment in zip(*rows.values(), strict=True)] == found.timeline.curve()
    at = found.peak_at.event
    assert {kind: row[at] for kind, row in rows.items() if row[at]} == found.owners()


def test_each_moment_has_a_place_behind_those_before_it() -> None:
    found = checkpointed()
    for course in both(found):
        assert len(course.at) == len(found.timeline.curve()) and len(course.starts) == len(found.timeline.work) + 1
        assert course.at == sorted(course.at) and course.starts == sorted(course.starts)


def test_over_bytes_memory_rises_along_its_line_and_falls_at_one_place() -> None:
    found = checkpointed()
    course, curve = over_bytes(found.timeline), found.timeline.curve()
    for (x, y), (x2, y2) in itertools.pairwise(zip(course.at, curve, strict=True)):
        assert x2 - x == max(y2 - y, 0)
    assert (course.unit, course.in_steps) == ("B", False)


def test_over_time_it_ends_with_the_run_and_phases_take_what_they_take() -> None:
    found = checkpointed()
    course, times = both(found)[1], found.seconds()
    assert course.end == pytest.approx(times.seconds)
    taken: dict[str, float] = {}
    for phase, begin, end in course.phases():
        taken[phase] = taken.get(phase, 0.0) + end - begin
    assert taken == pytest.approx(times.by_phase)


def test_results_are_there_from_the_start_of_an_operator_and_gone_at_the_end_of_one() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x @ x  # takes what its products take
        z = y.exp()
        del y
        return z.sin()

    found = sa.profile(program, torch.empty(100, 100), device=SLOW)
    product, element = 2 * 100**3 / 1e6, 2 * 40_000 / 1e6
    course = over_time(found.timeline, SLOW)
    of_y, of_z, after_z, of_result, after_result = 0.0, product, product + element, product + element, found.seconds()
    assert course.at == pytest.approx([0.0, of_y, of_z, after_z, of_result, after_result.seconds])
    assert [change for _, change in found.timeline.events] == [40_000, 40_000, -40_000, 40_000, -40_000]


def test_a_checkpoint_computes_again_between_parts_of_backward() -> None:
    for course in both(checkpointed()):
        phases = [phase for phase, _, _ in course.phases()]
        once = ["forward", *["backward", "recompute"] * 3, "backward", "optimizer"]
        assert phases == once * 2
        assert all(end == begin for (*_, end), (_, begin, _) in itertools.pairwise(course.phases()))


def test_the_peak_of_a_long_run_is_seen() -> None:
    heights = [i % 97 for i in range(100_000)]
    heights[54_321] = 1000
    chosen = seen(range(100_000), heights, columns=100)
    assert 54_321 in chosen and {0, 99_999} <= {*chosen} and len(chosen) <= 404
    assert chosen == sorted(chosen)


def test_a_run_without_events_is_seen() -> None:
    assert seen([0.0], [5]) == [0]
