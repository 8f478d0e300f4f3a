"""What the demo shows on the screen: progress while it works, one table at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        what: What was measured.
        ours: The figure of this library, with its unit.
        beside: What stands beside it, with its name: `"1518 ms  aot_function"`.
        passed: For a requirement, whether it holds; `None` for a figure that only informs.
    """

    what: str
    ours: str
    beside: str = ""
    passed: bool | None = None

    @property
    def verdict(self) -> str:
        return {None: "", True: "ok", False: "FAILED"}[self.passed]


class PlainScreen:
    """Writes lines of text; needs nothing.

    >>> screen = PlainScreen()
    >>> screen.stage("Counting")
    Counting
    >>> list(screen.track("ab", total=2, title="letters"))
      letters 1/2
      letters 2/2
    ['a', 'b']
    >>> screen.table("Result", [Row("letters", "2", passed=True), Row("time", "1 ms", "2 ms  by hand")])
    Result
      letters  2                    ok
      time     1 ms  2 ms  by hand
    """

    def stage(self, title: str) -> None:
        """Says what happens now."""
        print(title, flush=True)

    def track(self, items: Iterable[T], *, total: int, title: str) -> Iterator[T]:
        """Passes `items` through and shows how far it is, in ten steps."""
        shown = 0
        for done, item in enumerate(items, 1):
            yield item
            if done * 10 // total > shown:
                shown = done * 10 // total
                print(f"  {title} {done}/{total}", flush=True)

    def table(self, title: str, rows: Sequence[Row]) -> None:
        """Shows the rows in aligned columns."""
        cells = [(row.what, row.ours, row.beside, row.verdict) for row in rows]
        widths = [max(len(line[column]) for line in cells) for column in range(4)]
        print(title)
        for line in cells:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


class RichScreen:
    """The same with rich: a progress bar and a drawn table."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()

    def stage(self, title: str) -> None:
        """Says what happens now."""
        self._console.print(title, style="bold", highlight=False)

    def track(self, items: Iterable[T], *, total: int, title: str) -> Iterator[T]:
        """Passes `items` through and shows how far it is."""
        from rich.progress import track

        yield from track(items, description=f"  {title}", total=total, console=self._console)

    def table(self, title: str, rows: Sequence[Row]) -> None:
        """Shows the rows as a table."""
        from rich.box import SIMPLE
        from rich.table import Table

        table = Table(title=title, box=SIMPLE)
        for head in ("", "subclass_aot", "beside", ""):
            table.add_column(head, no_wrap=head != "beside")
        colour = {None: "", True: "green", False: "bold red"}
        for row in rows:
            table.add_row(row.what, row.ours, row.beside, row.verdict, style=colour[row.passed])
        self._console.print(table)


Screen = PlainScreen | RichScreen


def screen() -> Screen:
    """A `RichScreen` where rich is installed, else a `PlainScreen`."""
    try:
        return RichScreen()
    except ModuleNotFoundError:
        return PlainScreen()
