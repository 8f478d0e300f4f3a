"""The walk through one call: its program prints the graph that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.house import ROOT

README = (ROOT / "subclass_aot" / "engine" / "trace" / "README.md").read_text()


def test_the_program_prints_what_is_shown(tmp_path: Path) -> None:
    (python,), (shown,) = (
        re.findall(rf"^```{x}\n(.*?)^```", README, re.MULTILINE | re.DOTALL) for x in ("python", "text")
    )
    program = tmp_path / "program.py"
    program.write_text(python)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == shown.strip()


def test_files_that_it_names_exist() -> None:
    trace = ROOT / "subclass_aot" / "engine" / "trace"
    named = re.findall(r"`((?:\w+/)?\w+\.py)`", README)
    assert len(named) > 6 and all((trace / name).exists() or (trace.parent / name).exists() for name in named)
