"""What the command line takes, and that it is told without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from subclass_aot.__main__ import main


@pytest.mark.parametrize("arguments", [[], ["train"], ["inspect"], ["check"], ["demo"]])
def test_misspelt_command_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: python -m subclass_aot" in capsys.readouterr().err


def test_help_has_examples_by_who_needs_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    commands = re.findall(r"^  python -m subclass_aot (\S+)", shown, re.MULTILINE)
    assert set(commands) == {"check", "inspect", "bench", "profile", "measure", "build-native"}
    assert shown.count("\nwhile a class is written:\n") == 1


def without_torch(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command line where torch cannot be imported."""
    (folder / "torch.py").write_text("raise ImportError('torch is imported')")
    command = [sys.executable, "-m", "subclass_aot", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--help"], 0, "while a class is written:"),
        (["profile", "-h"], 0, "--over {bytes,time}"),
        ([], 2, "the following arguments are required: COMMAND"),
        (["inspct", "x"], 2, "invalid choice: 'inspct'"),
        (["inspect", "torch:Tensor"], 1, "torch is imported"),
    ],
)
def test_help_needs_no_torch(words: list[str], status: int, says: str, tmp_path: Path) -> None:
    done = without_torch(*words, folder=tmp_path)
    assert done.returncode == status and says in done.stdout + done.stderr
    assert ("Traceback" in done.stderr) is (status == 1)  # the last one, which shows that there is no torch


def test_a_module_of_a_user_that_runs_with_help_imports_the_package(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import subclass_aot")
    (tmp_path / "mine" / "__main__.py").write_text("import sys; print('mine', *sys.argv[1:])")
    command = [sys.executable, "-m", "mine", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "mine --help\n", done.stderr
