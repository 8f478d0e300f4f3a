"""The demo's screen: rich where it is installed, plain text where it is not."""

from __future__ import annotations

import sys

import pytest

from benchmarks.demo.report import PlainScreen, RichScreen, Row, screen

ROWS = [
    Row("equal", "0.0", "1e-5  allowed", True),
    Row("accuracy", "12%", "", False),
    Row("call", "9 us", "80 us  torch"),
]


def test_rich_is_used_where_it_is_installed() -> None:
    assert isinstance(screen(), RichScreen)


def test_plain_text_where_rich_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert isinstance(screen(), PlainScreen)


@pytest.mark.parametrize("kind", [PlainScreen, RichScreen])
def test_table_shows_every_row_and_verdict(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    kind().table("Result", ROWS)
    lines = capsys.readouterr().out.splitlines()
    for row in ROWS:
        line = next(line for line in lines if row.what in line)
        assert row.ours in line and row.beside in line and row.verdict in line


@pytest.mark.parametrize("kind", [PlainScreen, RichScreen])
@pytest.mark.parametrize("count", [0, 1, 7, 25])
def test_track_passes_every_item_through(kind: type, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(kind().track(iter(range(count)), total=count, title="items")) == list(range(count))
    assert len(capsys.readouterr().out.splitlines()) <= 10
