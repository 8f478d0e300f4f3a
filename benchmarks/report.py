"""The table and the JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.row import Result, Row, Target
from subclass_aot.base.whole_files import write_whole

_HEAD = ("what", "on", "against", "ours", "theirs", "times as fast", "spread", "target", "reached")


def write(results: Sequence[Result], machine: dict[str, Any], folder: Path) -> None:
    """Writes `table.md`, and `results.json` with every round."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "table.md", markdown(results, machine))
    write_whole(folder / "results.json", json.dumps(as_json(results, machine), indent=1) + "\n")


def as_json(results: Sequence[Result], machine: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, in microseconds."""
    comparisons = {id(result.comparison): result.comparison for result in results}
    numbers = {key: number for number, key in enumerate(comparisons)}
    return {
        "machine": machine,
        "unit": "microseconds per call, or per leaf where the row says so; one number per round",
        "rows": [
            {
                "subject": row.subject,
                "case": row.case,
                "against": row.against,
                "ours_us": _short(row.ours_us),
                "theirs_us": _short(row.other_us),
                "times_as_fast": _short(row.ratio.median),
                "quartiles": [_short(row.ratio.low), _short(row.ratio.high)],
                "target": row.target and row.target.text,
                "reached": row.reached,
                "comparison": numbers[id(result.comparison)],
                "ours": result.ours,
            }
            for result in results
            for row in result.rows()
        ],
        "comparisons": [
            {side: " ".join(str(_short(us)) for us in times) for side, times in comparison.microseconds.items()}
            for comparison in comparisons.values()
        ],
    }


def markdown(results: Iterable[Result], machine: dict[str, Any]) -> str:
    """The targets, each by its worst row, and then the table."""
    rows = [row for result in results for row in result.rows()]
    about = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in ("cores", "threads"))
    targets = _markdown_table(("target", "ought to be", "rows", "worst", "median", "best", "reached"), summary(rows))
    table = _markdown_table(_HEAD, [_cells(row) for row in rows])
    return f"Measured on: {about}.\n\n{targets}\n\n{_LEGEND}\n\n{table}\n"


def plain(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Aligned columns.

    >>> print(plain(("a", "bc"), [("def", "g")]))
    a    bc
    def  g
    """
    every = [head, *lines]
    widths = [max(len(line[column]) for line in every) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in every
    )


def on_screen(results: Iterable[Result]) -> str:
    """The same for a terminal: the table, and the targets below it."""
    rows = [row for result in results for row in result.rows()]
    targets = plain(("target", "ought to be", "rows", "worst", "median", "best", "reached"), summary(rows))
    return f"{plain(_HEAD, [_cells(row) for row in rows])}\n\n{targets}"


def summary(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """For each target: how many rows it applies to, the worst, the median and the best of them."""
    found: dict[Target, list[Row]] = {}
    for row in rows:
        if row.target is not None:
            found.setdefault(row.target, []).append(row)
    lines: list[tuple[str, ...]] = []
    for target, its_rows in found.items():
        ratios = sorted(row.ratio.median for row in its_rows)
        reached = sum(bool(row.reached) for row in its_rows)
        verdict = "yes" if reached == len(ratios) else "no" if not reached else f"{reached} of {len(ratios)}"
        worst, middle, best = ratios[0], ratios[len(ratios) // 2], ratios[-1]
        cells = (str(len(ratios)), _times(worst), _times(middle), _times(best), verdict)
        lines.append((target.name, f"{target.text} (>= {_times(target.at_least)})", *cells))
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.subject,
        row.case,
        row.against,
        _time(row.ours_us),
        _time(row.other_us),
        _times(row.ratio.median),
        f"{_times(row.ratio.low)} to {_times(row.ratio.high)}",
        "" if row.target is None else row.target.text,
        {None: "", True: "yes", False: "no"}[row.reached],
    )


def _markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _time(microseconds: float) -> str:
    """A time in the unit that suits it.

    >>> _time(0.0123), _time(4.56), _time(7890.0)
    ('12.3 ns', '4.56 us', '7.89 ms')
    """
    for factor, unit in ((1e-3, "ns"), (1.0, "us"), (1e3, "ms")):
        if microseconds < 1000 * factor or unit == "ms":
            break
    return f"{_number(microseconds / factor)} {unit}"


def _times(ratio: float) -> str:
    return _number(ratio) if ratio < 1000 else f"{ratio:.0f}"


def _number(value: float) -> str:
    """Three digits.

    >>> _number(1.0), _number(12.345), _number(1234.5)
    ('1.00', '12.3', '1234')
    """
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}"


def _short(value: float) -> float:
    return float(f"{value:.4g}")


_LEGEND = """\
`ours` and `theirs` are medians of processor time. `times as fast` is the median, over the rounds of one comparison,
of their time divided by ours; `spread` goes from its lower to its upper quartile. Below 1 the other side is faster.
Where a target applies to several rows, the summary gives the worst, the median and the best of them."""
