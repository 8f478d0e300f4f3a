"""Looks for programs that `aot_compile` gets wrong, as long as it is told: `python -m tests.fuzz`."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.fuzz.search import Drawn, check_drawn, fuzz


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs random programs.

    Args:
        arguments: The words of the command line; those of this process when left out.

    Returns:
        The exit status: 0 if no program was wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="where to begin (default: another one each time)")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time (default: %(default)s)")
    parser.add_argument("--torch-compile", action="store_true", help="compile with torch.compile")
    parser.add_argument("--latest", type=Path, help=argparse.SUPPRESS)  # of a process of ours: where to note programs
    chosen = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    if chosen.latest is None:
        return _in_processes(chosen.minutes, seed, chosen.processes, ["--torch-compile"] * chosen.torch_compile)
    torch.set_num_threads(1)
    warnings.simplefilter("error")  # a program of which torch warns is not worth a look

    def check(drawn: Drawn) -> None:
        chosen.latest.write_text(repr(drawn))
        check_drawn(drawn, chosen.torch_compile)

    return fuzz(chosen.minutes, seed, check)


def _in_processes(minutes: float, seed: int, count: int, words: Sequence[str] = ()) -> int:
    """Runs `count` processes of their own, since a program may crash the process that it runs in."""
    print(f"seed {seed}, for {minutes:g} minutes", flush=True)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--minutes", str(minutes)]
    command += words
    with tempfile.TemporaryDirectory() as folder:
        notes = [Path(folder) / str(i) for i in range(count)]
        started = [
            subprocess.Popen([*command, "--seed", str(seed + i), "--latest", str(note)]) for i, note in enumerate(notes)
        ]
        codes = [process.wait() for process in started]
        for code, note in zip(codes, notes, strict=True):
            if code not in (0, 1):
                print(f"The process ended with {code}, in this program:\n\n{note.read_text()}", flush=True)
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main())
