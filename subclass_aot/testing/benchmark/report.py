"""All that is measured of a class: as a table, as JSON, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from subclass_aot.native import show_config
from subclass_aot.testing.benchmark import rows as measuring
from subclass_aot.testing.benchmark.advice import Advice, advise
from subclass_aot.testing.benchmark.measure import Budget
from subclass_aot.testing.benchmark.rows import Row
from subclass_aot.testing.benchmark.subject import Maker

_HEAD = ("what", "name", "wrappers", "us", "dense us", "times as long")


@dataclass(frozen=True)
class Report:
    """The costs of a class.

    Args:
        name: Of the class.
        rows: What was measured, or refused.
        advice: What could be better.
    """

    name: str
    rows: Sequence[Row]
    advice: Sequence[Advice]

    def as_json(self) -> dict[str, object]:
        """Returns the same as data; times are in microseconds."""
        return {
            "class": self.name,
            "native": show_config().splitlines(),
            "unit": "microseconds, medians",
            "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows],
            "advice": [asdict(advice) for advice in self.advice],
        }

    def __str__(self) -> str:
        lines = [_HEAD, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*(line[: len(_HEAD)] for line in lines), strict=True)]
        table = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=False)).rstrip() for line in lines]
        refused = [f"  {row.name}: {row.refused}" for row in self.rows if row.refused]
        parts = ["\n".join([self.name, "", *table])]
        if refused:
            parts.append("\n".join(["Refused:", *refused]))
        parts.append("\n".join(["Advice:", *map(str, self.advice)]) if self.advice else "Nothing to advise.")
        return "\n\n".join(parts)


def bench(maker: Maker, budget: Budget, counts: Sequence[int] = measuring.COUNTS) -> Report:
    """Measures the class that a maker gives tensors of, beside dense tensors.

    Args:
        maker: Gives new tensors.
        budget: How long each comparison may take.
        counts: With how many wrappers a compiled function is called.
    """
    make = maker.make
    rows = [
        *measuring.parts(make, budget),
        *measuring.operators(make, budget),
        *measuring.calls(make, budget, counts),
    ]
    cls = type(make())
    return Report(f"{cls.__module__}.{cls.__qualname__}", rows, list(advise(make, rows)))


def plot(report: Report, path: Path) -> None:
    """Draws what a compiled call takes over the number of wrappers, beside dense tensors; wants matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(title=report.name, xlabel="wrappers", ylabel="microseconds")
    for group in ("null graph", "eager backend"):
        rows = [row for row in report.rows if row.group == group and row.us is not None]
        counts = [row.wrappers for row in rows]
        axes.loglog(counts, [row.us for row in rows], "o-", label=group)
        axes.loglog(counts, [row.dense_us for row in rows], "--", label=f"{group}, dense")
    axes.legend()
    figure.savefig(path, dpi=150)


def _cells(row: Row) -> tuple[str, ...]:
    if row.refused:
        return row.group, row.name, str(row.wrappers), "refused", "", ""
    return row.group, row.name, str(row.wrappers), _number(row.us), _number(row.dense_us), _number(row.ratio)


def _number(value: float | None) -> str:
    """Returns a number in three digits.

    >>> _number(0.0123), _number(4.567), _number(None)
    ('0.0123', '4.57', '')
    """
    return "" if value is None else f"{value:.3g}"
