"""The picture of a report: what stands in it, and that one can read it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling import Report
from subclass_aot.cost.profiling.course import rows_by_kind
from subclass_aot.cost.profiling.picture import figure_of, ready_to_draw
from subclass_aot.errors import ProfileError
from tests.cost.profiling.test_course import checkpointed

NEEDS_MATPLOTLIB = "pictures need it, and nothing else does"


def small() -> Report:
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8))
    return sa.profile(model, torch.randn(32, 64), optimizer=torch.optim.AdamW, device="H100", memory="1MiB")


def long() -> Report:
    """A run of many steps, in modules of long names, one of which is no text for a formula."""
    model = nn.Module()
    for i in range(12):
        model.add_module(f"a_module_{i}_whose_name_is_so_long_that_no_label_has_it_$whole", nn.Linear(256, 256))

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        for _ in range(40):
            y = x
            for layer in model.children():
                y = layer(y).relu()
            y.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return sa.profile(train, model, torch.optim.SGD(model.parameters(), 0.1), torch.empty(512, 256), device="A100")


def without_products() -> Report:
    return sa.profile(torch.sin, torch.randn(4), device="H100")


REPORTS = {"small": small, "long": long, "checkpointed": checkpointed, "without products": without_products}


def memory_of(figure: Any) -> Any:
    return figure.axes[0]


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def texts_of(figure: Any) -> Iterator[tuple[str, Any]]:
    """Yields each text that one sees, and its place."""
    for axes in figure.axes:
        left, right, low, high = *sorted(axes.get_xlim()), *sorted(axes.get_ylim())
        ticks = [x for x in axes.xaxis.get_major_ticks() if left <= x.get_loc() <= right and x.label1.get_visible()]
        ticks += [y for y in axes.yaxis.get_major_ticks() if low <= y.get_loc() <= high]
        shown = [tick.label1 for tick in ticks]
        shown += [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, *axes.texts]
        if axes.get_legend() is not None:
            shown += [axes.get_legend().get_title(), *axes.get_legend().get_texts()]
        for text in shown:
            if text.get_visible() and text.get_text().strip():
                yield text.get_text(), text.get_window_extent()


@pytest.mark.parametrize("over", ["bytes", "time"])
@pytest.mark.parametrize("name", REPORTS)
def test_each_text_is_in_the_picture_and_none_is_on_another(name: str, over: str) -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    figure = figure_of(REPORTS[name](), over)
    figure.draw_without_rendering()
    texts = [*texts_of(figure)]
    assert len(texts) > 8
    for text, box in texts:
        assert figure.bbox.padded(1).containsx(box.x0) and figure.bbox.padded(1).containsx(box.x1), text
        assert figure.bbox.padded(1).containsy(box.y0) and figure.bbox.padded(1).containsy(box.y1), text
    for (text, box), (other, others) in itertools.combinations(texts, 2):
        width = min(box.x1, others.x1) - max(box.x0, others.x0)
        height = min(box.y1, others.y1) - max(box.y0, others.y0)
        assert width <= 1 or height <= 1, (text, other)


def test_the_peak_is_named_with_its_operator_and_line() -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    found = checkpointed()
    first, second = memory_of(figure_of(found)).get_title(loc="left").split("\n")
    assert "peak" in first and "H100 SXM" in first and "it fits" in first
    assert second == str(found.peak_at) and found.peak_at.operator in second and "test_course.py:" in second


@pytest.mark.parametrize("over", ["bytes", "time"])
def test_what_is_drawn_is_what_the_report_says(over: str) -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    found = small()
    axes = memory_of(figure_of(found, over))
    rows = rows_by_kind(found.timeline)
    assert [text.split()[0] for text in legend_of(axes)] == ["limit", *reversed(rows)]
    unit = axes.get_ylabel().split("(")[1].rstrip(")")
    assert unit == "MiB" and legend_of(axes)[1] == "workspace 64.00 MiB"
    top = max(area.get_datalim(axes.transData).y1 for area in axes.collections)
    assert top == pytest.approx(found.peak / 2**20, rel=1e-6)
    (marker,) = [line for line in axes.lines if line.get_marker() == "v"]
    assert marker.get_ydata()[0] == pytest.approx(found.peak / 2**20)
    (limit,) = [line for line in axes.lines if line.get_label().startswith("limit")]
    assert [*limit.get_ydata()] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("over", "label"), [("bytes", "bytes allocated so far (MiB)"), ("time", "time at best on H100 SXM (us)")]
)
def test_the_axis_has_a_name_and_a_unit(over: str, label: str) -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    found = checkpointed()
    axes = figure_of(found, over).axes[1]
    assert axes.get_xlabel() == label
    last = max(t for t in axes.get_xticks() if t <= axes.get_xlim()[1])
    written = float(axes.xaxis.get_major_formatter()(last))
    assert written * (2**20 if over == "bytes" else 1e-6) == pytest.approx(last)
    assert over == "bytes" or axes.get_xlim()[1] == pytest.approx(found.seconds().seconds)


def test_recomputation_is_a_phase_of_its_own() -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    found = checkpointed()
    memory, phases, products = figure_of(found, "time").axes
    assert legend_of(phases) == ["forward", "recompute", "backward", "optimizer"]
    bars = {bar.get_label(): bar.get_paths() for bar in phases.collections}
    assert {name: len(paths) for name, paths in bars.items()} == {
        "forward": 2, "recompute": 6, "backward": 8, "optimizer": 2,
    }  # fmt: skip
    taken = sum(path.get_extents().width for path in bars["recompute"])
    assert taken == pytest.approx(found.seconds().by_phase["recompute"])
    assert [text.split()[0] for text in legend_of(products)] == ["forward", "recompute", "backward"]
    colors = {bar.get_label(): tuple(bar.get_facecolor()[0]) for bar in phases.collections}
    assert len({*colors.values()}) == 4
    for bars_of_phase in products.containers:
        assert tuple(bars_of_phase[0].get_facecolor()) == colors[bars_of_phase.get_label().split()[0]]
    assert memory.get_xlim() == phases.get_xlim()


def test_modules_that_have_no_bar_are_counted() -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    products = figure_of(long()).axes[2]
    assert products.get_xlabel() == "floating-point operations (GFLOP), the 8 with the most of 12 modules"
    assert len(products.get_yticks()) == 8
    assert all(text.get_text().startswith("...") for text in products.get_yticklabels())


def test_nothing_is_drawn_where_there_are_no_products() -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    assert len(figure_of(without_products()).axes) == 2


def test_a_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    found = checkpointed()
    found.plot(tmp_path / "out.png", over="time")
    assert (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"
    found.plot(tmp_path / "out.svg")
    assert "bytes allocated" in (tmp_path / "out.svg").read_text()


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason=NEEDS_MATPLOTLIB)
    with pytest.raises(ProfileError, match="no plot over 'events'.*\n.*'bytes'.*'time'"):
        small().plot(tmp_path / "out.png", over="events")
    with pytest.raises(ProfileError, match='needs a device.*\n.*over="bytes"'):
        sa.profile(torch.sin, torch.randn(4)).plot(tmp_path / "out.png", over="time")
    with pytest.raises(ProfileError, match=r"no pictures that end in '\.doc'.*\n.*png"):
        small().plot(tmp_path / "out.doc")
    assert not [*tmp_path.iterdir()]


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ProfileError, match="pip install 'subclass-aot"):
        ready_to_draw("out.png")
