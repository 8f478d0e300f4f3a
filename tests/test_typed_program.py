"""A program of a user passes `mypy --strict`, runs, and is told where it is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import typed_program

PROGRAM = Path(typed_program.__file__)
ROOT = PROGRAM.parent.parent

WRONG = """
import torch
import subclass_aot as sa
from tests.typed_program import double, train

double("two")  # arg-type
double(torch.ones(2)).no_such_name  # attr-defined
double(torch.ones(2), bye=3)  # call-arg
sa.aot_compile(train, dynamic="yes")  # arg-type
sa.profile(train, device=3)  # call-overload
sa.no_such_function(train)  # attr-defined
sa.trace_joint(train).no_such_name  # attr-defined
"""


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed_program.main(tmp_path)
    assert "has no block to compile" in capsys.readouterr().out


@pytest.mark.long  # mypy reads all of torch
def test_it_is_typed_and_what_is_wrong_is_told(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="`make lint` has it, and nothing else does")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    # As of a package that is installed, of which a user's mypy says nothing.
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "-m", "tests.typed_program", "-m", "wrong"],
        env=os.environ | {"MYPYPATH": f"{ROOT}{os.pathsep}{tmp_path}"}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    told = re.findall(r"^(?:.*/)?([\w/]+\.py):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    expected = [
        ("wrong.py", str(number), line.partition("# ")[2])
        for number, line in enumerate(WRONG.splitlines(), 1)
        if "# " in line
    ]
    assert told == expected, done.stdout + done.stderr
