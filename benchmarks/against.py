"""`python -m benchmarks.against BASE`: the benchmarks of this commit beside those of another, in pairs of processes.

Each round runs one process of each commit, in an order that changes from round to round; a row's ratio is that of its
two times in one round, so that a slow moment of the machine hits both. What is compared are the working tree and a
temporary worktree of the other commit. Rows that only one of them has are named and not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import plain
from subclass_aot.testing.benchmark import Comparison, Ratio

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ("call", "leaves")
ROUNDS = 5

Key = tuple[str, str]
"""What is done, and on what: our side of a row."""
Times = Mapping[Key, float]
"""Microseconds of our side."""
Measure = Callable[[Path, Sequence[str]], Times]
"""Runs subjects of the benchmarks that lie in a folder."""


@dataclass(frozen=True)
class Change:
    """How many times as fast this commit does something as the other one.

    Args:
        key: What.
        here_us: The median of the rounds here.
        base_us: The median there.
        ratio: Base divided by here: the median of the rounds, and its quartiles.
    """

    key: Key
    here_us: float
    base_us: float
    ratio: Ratio


def compare_commits(
    base: Path, here: Path, subjects: Sequence[str], rounds: int, measure: Measure
) -> tuple[list[Change], list[Key]]:
    """Measures two trees in turns.

    Args:
        base: The tree of the other commit.
        here: The tree of this one.
        subjects: Which benchmarks.
        rounds: How many pairs of processes.
        measure: Runs them.

    Returns:
        The rows that both have, and the names of those that only one has.

    Raises:
        ValueError: There are no rows that both have.
    """
    found: dict[Key, dict[str, list[float]]] = {}
    for number in range(rounds):
        order = [("base", base), ("here", here)]
        for side, folder in order if number % 2 == 0 else order[::-1]:
            for key, us in measure(folder, subjects).items():
                found.setdefault(key, {}).setdefault(side, []).append(us)
    changes, alone = [], []
    for key, sides in found.items():
        if {side: len(times) for side, times in sides.items()} != {"base": rounds, "here": rounds}:
            alone.append(key)
            continue
        times = Comparison({side: tuple(us) for side, us in sides.items()})
        changes.append(Change(key, times.median_us("here"), times.median_us("base"), times.ratio("here", "base")))
    if not changes:
        raise ValueError(f"no row of {', '.join(subjects)} is in both commits")
    return changes, alone


def run_in(folder: Path, subjects: Sequence[str], *, quick: bool = False) -> Times:
    """Runs the benchmarks of a folder in a process of their own, and reads our side of every row."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "benchmarks", "--out", out, *(["--quick"] if quick else [])]
        command += [word for subject in subjects for word in ("--only", subject)]
        known = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[1:])} failed in {folder}:\n{done.stderr.strip()[-2000:]}")
        rows = json.loads((Path(out) / "results.json").read_text())["rows"]
    return {(row["subject"], row["case"]): row["ours_us"] for row in rows}


_ASK = """
from pathlib import Path
import subclass_aot
try:
    from subclass_aot import native
except ImportError:  # before version 0.2
    from subclass_aot import _native as native
print(Path(subclass_aot.__file__).resolve().parent.parent)
print(native.show_config() if hasattr(native, "show_config") else f"comparing: {native.ONE_CALL_PAYS}")
"""


def parts_in(folder: Path) -> list[str]:
    """Which parts of the library in a folder run in C or C++, line by line.

    Raises:
        RuntimeError: Its processes would measure a library that lies elsewhere.
    """
    known = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", _ASK], cwd=folder, env=known, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the library in {folder} cannot be imported:\n{done.stderr.strip()[-2000:]}")
    place, *lines = done.stdout.splitlines()
    if Path(place) != folder.resolve():
        raise RuntimeError(f"a process in {folder} imports the library of {place}")
    return [line for line in lines if line.endswith((" C", " C++", " Python")) or line.startswith("comparing")]


@contextlib.contextmanager
def worktree(repository: Path, revision: str) -> Iterator[Path]:
    """A temporary checkout of a commit, with the extension of the repository's own tree if its source is the same."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "base"
        git = ["git", "-C", str(repository), "worktree"]
        added = subprocess.run([*git, "add", "--detach", str(folder), revision], capture_output=True, text=True)
        if added.returncode:
            raise RuntimeError(f"there is no commit {revision}: {added.stderr.strip()}")
        try:
            _link_extensions(repository, folder)
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True, capture_output=True)


def _link_extensions(here: Path, there: Path) -> None:
    """Builds are no part of a commit: one that was made of the same source serves both commits."""
    ours, theirs = (_native_of(tree / "subclass_aot") for tree in (here, there))
    if ours is None or theirs is None or not (built := sorted(ours.glob("_exact*.so"))):
        return
    if (ours / "exact.c").read_bytes() != (theirs / "exact.c").read_bytes():
        print("exact.c differs: the other commit runs without this extension", file=sys.stderr)
        return
    for file in built:
        (theirs / file.name).symlink_to(file)


def _native_of(package: Path) -> Path | None:
    """Returns the folder of native code, which had another name before version 0.2; None if there is none."""
    folders = (package / name for name in ("native", "_native"))
    return next((folder for folder in folders if (folder / "exact.c").exists()), None)


def on_screen(changes: Sequence[Change], alone: Sequence[Key]) -> str:
    """The table, and what is not in it."""
    lines = [
        (
            *change.key,
            f"{change.here_us:.3g}",
            f"{change.base_us:.3g}",
            f"{change.ratio.median:.2f}",
            f"{change.ratio.low:.2f} to {change.ratio.high:.2f}",
        )
        for change in changes
    ]
    table = plain(("what", "on", "here, us", "base, us", "times as fast", "quartiles"), lines)
    others = "".join(f"\n  {what}, {case}" for what, case in alone)
    return table + (f"\n\nOnly in one of the commits, or not in every round:{others}" if alone else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("base", help="the other commit")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="with commas between (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of processes (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few rounds in each process, a first impression")
    chosen = parser.parse_args(arguments)

    def measure(folder: Path, subjects: Sequence[str]) -> Times:
        return run_in(folder, subjects, quick=chosen.quick)

    try:
        with worktree(ROOT, chosen.base) as base:
            there, mine = parts_in(base), parts_in(ROOT)
            if there != mine:
                print("The commits do not run the same parts in C++, which alone changes times.")
                print("\n".join(["Base:", *there, "", "Here:", *mine, ""]))
            print(on_screen(*compare_commits(base, ROOT, chosen.subjects.split(","), chosen.rounds, measure)))
    except (RuntimeError, ValueError) as error:
        print(f"python -m benchmarks.against: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
