"""The environments that the library is tried in, and how a process is put into each."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")

IS_ROOT = os.name == "posix" and os.geteuid() == 0
PLAIN = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if IS_ROOT else ()
"""Takes from root what other users have not: to read and write everything."""

NAMELESS = (
    *("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"),
    *(f"--{kind}=-all,+dac_read_search" for kind in ("inh-caps", "bounding-set")),
    "--ambient-caps=+dac_read_search",  # where Python itself may stand in a home
)


@dataclass(frozen=True)
class Row:
    """One environment.

    Attributes:
        name: What the table calls it.
        python: The version of Python, as "3.12".
        torch: The version of torch.
        words: Of the program.
        flags: Of Python.
        home: What becomes of the home: "own", "none", or "closed".
        before: A command that runs the program.
        path: The PATH, if it is another one.
        read_only: Whether the installed package cannot be written.
    """

    name: str
    python: str = "3.11"
    torch: str = "2.13.0"
    words: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    home: str = "own"
    before: tuple[str, ...] = ()
    path: str | None = None
    read_only: bool = field(default=False)

    @property
    def cannot_run(self) -> str:
        """Why it cannot be tried on this machine; nothing where it can."""
        if self.before and not shutil.which(self.before[0]):
            return f"there is no {self.before[0]}"
        if self.before == NAMELESS and not IS_ROOT:
            return "only root becomes another user"
        return ""


ROWS = [
    Row("without numpy", words=("--demo",)),
    Row("without HOME", home="none"),
    Row("HOME cannot be read", home="closed", before=PLAIN),
    Row("a user without a name or HOME", home="none", before=NAMELESS),
    Row("site-packages is read-only", read_only=True, before=PLAIN),
    Row("without a C compiler", path=""),
    Row("`python -O`", flags=("-O",)),
    Row("`python -X dev`, our warnings are errors", flags=("-X", "dev"), words=("--strict",)),
    Row("Python 3.12", python="3.12"),
    Row("Python 3.13", python="3.13"),
    Row("torch 2.11.0", torch="2.11.0"),
    Row("torch 2.15.0", torch="2.15.0"),
]


@dataclass(frozen=True)
class Ran:
    """What came of a row: what went well, in order, and what ended it, if anything."""

    what: list[str]
    wrong: str


def run(row: Row, python: Path, more: tuple[str, ...] = (), timeout: int = 300) -> Ran:
    """Runs the program in an environment.

    Args:
        row: Which.
        python: Where torch and the library are installed, or found by PYTHONPATH.
        more: More words for the program.
        timeout: In seconds.
    """
    with tempfile.TemporaryDirectory() as given, _home(row, Path(given)) as home, _closed(row, python):
        environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "CXX")}
        environment |= {"OMP_NUM_THREADS": "1", "SUBCLASS_AOT_NATIVE": "exact"}
        if str(python) != sys.executable:  # there, the library is installed
            environment.pop("PYTHONPATH", None)
        environment |= {} if home is None else {"HOME": str(home)}
        environment |= {} if row.path is None else {"PATH": row.path}
        if row.before == NAMELESS:
            os.chown(given, 12345, 12345)  # else there would be no place for temporary files, either
        environment["TMPDIR"] = given
        before = [shutil.which(row.before[0]) or "", *row.before[1:]] if row.before else []
        command = [*before, str(python), *row.flags, str(PROGRAM), *row.words, *more]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=given, timeout=timeout)
            status, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            status, out, err = 1, (late.stdout or b"").decode(), f"it takes more than {timeout} s"
    what = [line.removeprefix("ok ") for line in out.splitlines() if line.startswith("ok ")]
    return Ran(what, (err.strip() or f"exit status {status}") if status else "")


@contextmanager
def _home(row: Row, folder: Path) -> Iterator[Path | None]:
    if row.home == "none":
        yield None
        return
    home = folder / "home"
    home.mkdir(mode=0o000 if row.home == "closed" else 0o700)
    try:
        yield home
    finally:
        home.chmod(0o700)


@contextmanager
def _closed(row: Row, python: Path) -> Iterator[None]:
    """Takes the right to write from the folders of the installed package, for the block."""
    folders = []
    if row.read_only:
        (packages,) = (python.parent.parent / "lib").glob("python*/site-packages")
        folders = [packages, *(path for path in (packages / "subclass_aot").rglob("*") if path.is_dir())]
        folders.append(packages / "subclass_aot")
    try:
        for path in folders:
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
        yield
    finally:
        for path in folders:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def find_python(version: str) -> str:
    """Finds a Python of a version on this machine; nothing where there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    others = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for found in (shutil.which(f"python{version}"), *map(str, others)):
        if found and not subprocess.run([found, "-c", "import venv"], capture_output=True).returncode:
            return found
    return ""
