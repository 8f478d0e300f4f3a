"""The picture of a report: memory over the run by kind, the phases under it, and products by module."""

from __future__ import annotations

import collections
import importlib.util
import os
import textwrap
from typing import Any

from subclass_aot.base.whole_files import written_beside
from subclass_aot.cost.profiling.course import Course, over_bytes, over_time, rows_by_kind, seen
from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.cost.profiling.words import amount, unit_of
from subclass_aot.errors import ProfileError
from subclass_aot.meta import Operation

AXES = ("bytes", "time")
"""What a picture may be drawn over."""

_NO_MATPLOTLIB = """A plot needs matplotlib, which is not installed.
  Instead: pip install 'subclass-aot[demo]', and try again."""

_NO_AXIS = """There is no plot over {over!r}.
  Instead: write 'bytes', for bytes allocated, or 'time', for the time at best."""

_NO_TIME = """A plot over time needs a device: nobody said which one the run is on.
  Instead: sa.profile(..., device="H100"), or over="bytes"."""

_NO_ENDING = """A plot cannot be written to {path}: matplotlib has no pictures that end in {ending!r}.
  Instead: write a path that ends in one of {known}."""

_OF_KINDS = {
    "parameter": "#4c78a8", "buffer": "#9ecae9", "input": "#72b7b2", "constant": "#8c8c8c", "optimizer": "#f58518",
    "gradient": "#e45756", "saved": "#b279a2", "output": "#54a24b", "temporary": "#eeca3b",
    "communication": "#9d755d", "workspace": "#d0d0d0",
}  # fmt: skip
_OF_PHASES = {"forward": "#a1d99b", "recompute": "#fdae6b", "backward": "#9ecae1", "optimizer": "#d4b9da"}
"""A kind and a phase have the same color in each picture."""

_MODULES = 8  # that have a bar


def ready_to_draw(path: str | os.PathLike[str], over: str = "bytes", has_device: bool = True) -> None:
    """Checks that a picture can be drawn, before anything is computed for it.

    Args:
        path: The picture.
        over: What it is drawn over.
        has_device: Whether it is known which device the run is on.

    Raises:
        ProfileError: There is no matplotlib, no picture with such an ending, no such axis, or no device for time.
    """
    if over not in AXES:
        raise ProfileError(_NO_AXIS.format(over=over))
    if over == "time" and not has_device:
        raise ProfileError(_NO_TIME)
    if importlib.util.find_spec("matplotlib") is None:
        raise ProfileError(_NO_MATPLOTLIB)
    from matplotlib.backend_bases import FigureCanvasBase

    known, ending = FigureCanvasBase.get_supported_filetypes(), os.path.splitext(path)[1]
    if ending and ending[1:].lower() not in known:
        raise ProfileError(_NO_ENDING.format(path=os.fspath(path), ending=ending, known=", ".join(sorted(known))))


def plot(report: Figures, path: str | os.PathLike[str], over: str = "bytes") -> None:
    """Draws a report into a file.

    Args:
        report: The report.
        path: The picture; its ending says of which kind, as ".png" or ".svg".
        over: What it is drawn over: see `figure_of`.

    Raises:
        ProfileError: See `ready_to_draw`.
    """
    ready_to_draw(path, over, report.device is not None)
    with written_beside(path) as part:
        figure_of(report, over).savefig(part, dpi=100)


def figure_of(report: Figures, over: str = "bytes", columns: int = 500) -> Any:
    """Returns the picture of a report as a figure of matplotlib.

    Args:
        report: The report.
        over: "bytes", for the bytes that were allocated so far, or "time", for the time at best.
        columns: How fine memory is drawn: how many places there are beside each other.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    products = _products_by_module(report)
    figure = Figure(figsize=(9, 6.6 if products else 4.6), layout=ConstrainedLayoutEngine(hspace=0.01))
    FigureCanvasAgg(figure)
    rows = [(4, 0.28), (1.9,)] if products else [(4, 0.28)]
    parts = figure.subfigures(len(rows), 1, height_ratios=[sum(row) for row in rows], squeeze=False)[:, 0]
    above, strip = parts[0].subplots(2, 1, height_ratios=rows[0], sharex=True)
    course = _course(report, over)
    _draw_memory(report, course, columns, above)
    _label(course, strip)
    names = _draw_phases(course, strip)
    if products:
        _draw_products(products, parts[1].subplots())
    figure.draw_without_rendering()  # only then it is known where each text is
    for text, (begin, end) in names:
        left, right = (above.transData.transform((x, 0))[0] for x in (begin, end))
        text.set_visible(text.get_window_extent().width < 0.95 * (right - left))
    return figure


def _course(report: Figures, over: str) -> Course:
    if over == "bytes":
        return over_bytes(report.timeline)
    if report.device is None:
        raise ProfileError(_NO_TIME)
    return over_time(report.timeline, report.device)


def _label(course: Course, axes: Any) -> None:
    """Writes what the axis of a course has, and in which unit."""
    factor, unit = unit_of(course.end, course.unit)
    axes.set_xlabel(f"{course.label} ({unit})")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / factor:g}")
    axes.xaxis.set_major_locator(_round_steps(factor))


def _round_steps(factor: float) -> Any:
    """Returns a locator of ticks that are round numbers of a unit."""
    from matplotlib.ticker import MaxNLocator

    class InUnits(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            return [place * factor for place in super().tick_values(vmin / factor, vmax / factor)]

    return InUnits(nbins=8, steps=[1, 2, 2.5, 5, 10])


def _draw_memory(report: Figures, course: Course, columns: int, axes: Any) -> None:
    rows, peak, moment = rows_by_kind(report.timeline), report.peak, report.peak_at
    factor, unit = unit_of(peak, "B")
    shown = seen(course.at, report.timeline.curve(), columns)
    held = report.owners("kind")
    axes.stackplot(
        [course.at[i] for i in shown],
        [[row[i] / factor for i in shown] for row in rows.values()],
        labels=[f"{kind} {amount(held.get(kind, 0))}" for kind in rows],
        colors=[_OF_KINDS[kind] for kind in rows],
        **({"step": "post"} if course.in_steps else {}),
    )
    memory = report.memory or 0
    ceiling = max(peak, memory if memory < peak * 1.5 else 0) / factor
    axes.plot([course.at[moment.event]], [peak / factor], "kv", markersize=6, clip_on=False, label="_the peak")
    if 0 < memory <= ceiling * factor:
        axes.axhline(memory / factor, color="red", linewidth=1.2, label=f"limit {amount(memory)}")
    axes.set(xlim=(0, course.end or 1), ylim=(0, ceiling * 1.06 or 1))
    axes.set_ylabel(f"memory ({unit})")
    axes.tick_params(bottom=False, labelbottom=False)
    axes.set_title(_words_of_peak(report), loc="left", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], title="held at the peak", loc="upper left", bbox_to_anchor=(1.01, 1.0),
        fontsize=8, title_fontsize=8, frameon=False, alignment="left",
    )  # fmt: skip


def _words_of_peak(report: Figures) -> str:
    """Returns how large the peak is, and where in the user's program."""
    lines = [f"\N{BLACK DOWN-POINTING TRIANGLE} peak {amount(report.peak)}"]
    if report.device is not None:
        lines[0] += f" on {report.device.name}"
    if report.memory is not None:
        lines[0] += f", there is {amount(report.memory)}: {'it fits' if report.fits else 'it does not fit'}"
    lines += textwrap.wrap(str(report.peak_at), 110, break_on_hyphens=False)
    return _plain("\n".join(lines))


def _plain(text: str) -> str:
    """Returns a text that matplotlib takes for no formula."""
    return text.replace("$", r"\$")


def _draw_phases(course: Course, axes: Any) -> list[tuple[Any, tuple[float, float]]]:
    """Draws the phases as a strip; returns the names of the long ones, and where each begins and ends."""
    places: dict[str, list[tuple[float, float]]] = {}
    names = []
    whole = axes.get_xlim()[1]
    for phase, begin, end in course.phases():
        places.setdefault(phase, []).append((begin, end))
        if end - begin > whole * 0.02:
            words = axes.text((begin + end) / 2, 0.5, phase, ha="center", va="center", fontsize=8)
            names.append((words, (begin, end)))
    for phase in (phase for phase in Operation.PHASES if phase in places):
        bars = [(begin, end - begin) for begin, end in places[phase]]
        axes.broken_barh(bars, (0, 1), facecolors=_OF_PHASES[phase], label=phase)
    axes.set(ylim=(0, 1), yticks=[])
    axes.set_ylabel("phase", rotation=0, ha="right", va="center")
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.6), fontsize=8, frameon=False, ncols=2, columnspacing=1,
        handlelength=1,
    )  # fmt: skip
    return names


def _products_by_module(report: Figures) -> dict[str, dict[str, int]]:
    """Returns floating-point operations by module and phase, the module with the most first."""
    found: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for phase in Operation.PHASES:
        for module, flops in report.flops(phase, by="module", depth=3).items():
            found[module][phase] = flops
    return dict(sorted(found.items(), key=lambda each: -sum(each[1].values())))


def _draw_products(products: dict[str, dict[str, int]], axes: Any) -> None:
    names = [*products][:_MODULES][::-1]
    factor, unit = unit_of(max(sum(each.values()) for each in products.values()), "FLOP")
    places = range(len(names))
    left = [0.0] * len(names)
    for phase in Operation.PHASES:
        whole = sum(each.get(phase, 0) for each in products.values())
        if whole:
            widths = [products[name].get(phase, 0) / factor for name in names]
            axes.barh(places, widths, left=left, label=f"{phase} {amount(whole, 'FLOP')}", color=_OF_PHASES[phase])
            left = [a + b for a, b in zip(left, widths, strict=True)]
    of = f", the {len(names)} with the most of {len(products)} modules" if len(names) < len(products) else ""
    axes.set_xlabel(f"floating-point operations ({unit}){of}")
    axes.set_yticks(places, [_plain(_tail(name) or "(no module)") for name in names], fontsize=8)
    axes.legend(
        title="in all", loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, title_fontsize=8, frameon=False,
        alignment="left",
    )  # fmt: skip


def _tail(name: str, longest: int = 28) -> str:
    """Returns a name, or the end of a long one."""
    return name if len(name) <= longest else f"...{name[3 - longest :]}"
