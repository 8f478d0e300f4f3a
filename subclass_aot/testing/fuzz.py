"""Looks for programs that `aot_compile` gets wrong, as long as it is told: `python -m subclass_aot.testing.fuzz`."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import hypothesis
import torch
from hypothesis import HealthCheck, Phase

from subclass_aot.errors import DifferenceError
from subclass_aot.testing.agreement import check_program
from subclass_aot.testing.check import check_compiled
from subclass_aot.testing.programs import Program, mode_of, programs

_PROGRAMS_PER_ROUND = 100  # of one seed for hypothesis; few, so that the end is near when the time is over


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs random programs.

    Args:
        arguments: The words of the command line; those of this process when left out.

    Returns:
        The exit status: 0 if no program was wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m subclass_aot.testing.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="where to begin (default: another one each time)")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time (default: %(default)s)")
    parser.add_argument("--latest", type=Path, help=argparse.SUPPRESS)  # of a process of ours: where to note programs
    chosen = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    if chosen.latest is None:
        return _in_processes(chosen.minutes, seed, chosen.processes)
    torch.set_num_threads(1)
    warnings.simplefilter("error")  # a program of which torch warns is not worth a look

    def check(program: Program) -> None:
        chosen.latest.write_text(repr(program))
        check_program(program)

    return fuzz(chosen.minutes, seed, check)


def _in_processes(minutes: float, seed: int, count: int) -> int:
    """Runs `count` processes of their own, since a program may crash the process that it runs in."""
    print(f"seed {seed}, for {minutes:g} minutes", flush=True)
    command = [sys.executable, "-X", "faulthandler", "-m", "subclass_aot.testing.fuzz", "--minutes", str(minutes)]
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


def fuzz(minutes: float, seed: int, check: Callable[[Program], object] = check_program) -> int:
    """Draws and checks programs until the time is over, or one is wrong; that one is made small and printed.

    Args:
        minutes: How long.
        seed: The same programs come in the same order for the same seed.
        check: Raises for a program that is wrong.

    Returns:
        0, or 1 if a program was wrong.
    """
    begin, said, count = time.monotonic(), 0, 0
    latest: list[Program] = []
    rounds = random.Random(seed)

    def body(program: Program) -> None:
        nonlocal count
        latest[:] = [program]
        count += 1
        check(program)

    strategy = hypothesis.given(programs(everything=True))
    options = hypothesis.settings(
        max_examples=_PROGRAMS_PER_ROUND,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    passed = 0.0
    while not count or passed < minutes:
        try:
            hypothesis.seed(rounds.getrandbits(32))(options(strategy(body)))()
        except Exception as error:
            print(f"A wrong program, after {count} (seed {seed}):\n\n{latest[0]}\n")
            traceback.print_exception(error)
            print(_as_script(latest[0]), flush=True)
            return 1
        passed = (time.monotonic() - begin) / 60
        if passed >= said + 1:
            said = int(passed)
            print(f"{said} minutes: {count} programs", flush=True)
    print(f"{count} programs, none wrong (seed {seed})", flush=True)
    return 0


def _as_script(program: Program) -> str:
    """The program as one that can be pasted somewhere else, as small as it can be."""
    for seed in (1, 2):
        try:
            with mode_of(program):
                check_compiled(program.function, program.make_arguments(seed)[0])
        except DifferenceError as error:
            return str(error)
        except Exception as error:
            return f"check_compiled cannot show it: {error}"
    return "check_compiled sees no difference: it depends on what is done with the results."


if __name__ == "__main__":
    sys.exit(main())
