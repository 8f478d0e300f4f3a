"""Tries the library in all environments: `python -m tests.smoke [NAME ...]`. `make test-smoke` runs it.

What is missing is made in `.venv-smoke/`; that takes long the first time, since a torch has some gigabytes. The table
goes to docs/environments/table.md, and with names, which choose rows that have them in theirs, to the screen alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.smoke.rows import ROWS, Row, find_python, run

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "docs" / "environments" / "table.md"
HEAD = "| environment | what ran | seconds | result |\n|---|---|---|---|\n"
AS_IS = Row("as it is, with numpy and what `make` installs")


def main(names: list[str]) -> int:
    """Runs the rows that are asked for, and writes the table.

    Returns:
        The exit status: 1 if a row failed.
    """
    rows = [row for row in (AS_IS, *ROWS) if not names or any(name in row.name for name in names)]
    failed, lines = 0, []
    with tempfile.TemporaryDirectory() as folder:
        blocks = _blocks(Path(folder))
        wheel = _wheel(Path(folder))
        for row in rows:
            line, wrong = _line(row, wheel, blocks)
            print(line, flush=True)
            lines.append(line)
            if wrong:
                failed += 1
                print(wrong, file=sys.stderr, flush=True)
    if not names:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _line(row: Row, wheel: Path, blocks: Path) -> tuple[str, str]:
    """The line of a row in the table, and what is wrong with it."""
    why, python = row.cannot_run, Path(sys.executable)
    if not why and row is not AS_IS:
        why, python = _environment(row, wheel)
    if why:
        return f"| {row.name} | | | not tried: {why} |", ""
    began = time.monotonic()
    ran = run(row, python, (str(blocks),))
    took = time.monotonic() - began
    return f"| {row.name} | {', '.join(ran.what)} | {took:.0f} | {'FAILED' if ran.wrong else 'ok'} |", ran.wrong


def _environment(row: Row, wheel: Path) -> tuple[str, Path]:
    """A virtual environment with torch, and without numpy, into which the library is installed."""
    folder = ROOT / ".venv-smoke" / f"python{row.python}-torch{row.torch}"
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        found = find_python(row.python)
        if not found:
            return f"there is no Python {row.python} on this machine", python
        print(f"making {folder.name}", file=sys.stderr, flush=True)
        for command in (
            [found, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", f"torch=={row.torch}", "optree>=0.15"],
        ):
            subprocess.run(command, check=True)
        (folder / "made").touch()
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
    subprocess.run([str(python), *install], check=True)
    return "", python


def _wheel(folder: Path) -> Path:
    """The library as a wheel of pure Python, as an isolated build makes it."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("*.so", "*.sha256", "__pycache__")
    shutil.copytree(ROOT / "subclass_aot", source / "subclass_aot", ignore=ignored)
    for name in ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    program = "import sys; sys.modules['torch'] = None; from setuptools import build_meta; "
    command = [sys.executable, "-c", f"{program}build_meta.build_wheel({str(folder)!r})"]
    subprocess.run(command, check=True, cwd=source, capture_output=True)
    return next(folder.glob("*.whl"))


def _blocks(folder: Path) -> Path:
    """The programs of README and of the first page of the documentation, each in a file."""
    programs = folder / "blocks"
    programs.mkdir()
    for page in (ROOT / "README.md", ROOT / "docs" / "getting_started.md"):
        found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(found):
            (programs / f"{page.stem.lower()}_{number}.py").write_text(block)
    folder.chmod(0o755)  # other users read it
    return programs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
