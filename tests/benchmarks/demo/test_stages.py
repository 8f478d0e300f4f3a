"""The demo as a whole, on so little training that its accuracy is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.demo import report
from benchmarks.demo.stages import run


def test_run_reports_equality_plots_and_the_failed_requirement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.demo.stages.screen", report.PlainScreen)
    assert run(tmp_path / "plots", epochs=1) == 1
    table = capsys.readouterr().out.partition("subclass_aot demo\n")[2].splitlines()
    verdicts = {line.split("  ")[1]: line.split()[-1] for line in table if line.split()[-1] in ("ok", "FAILED")}
    assert verdicts == {"digits: loss, 14 steps": "ok", "digits: parameters": "ok", "digits: accuracy": "FAILED"}
    for plot in ("losses.png", "call_overhead.png"):
        assert (tmp_path / "plots" / plot).stat().st_size > 10_000
