"""The command line of the demo: `python -m benchmarks.demo`; `make demo` installs what it needs."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo, in one process or in several.

    Args:
        arguments: The words after the program's name; those of this process when left out.

    Returns:
        The exit status: 0 when what was compiled equals eager mode, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo",
        description="Train a quantized ViT compiled and in eager mode, and show what it costs.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo_out"), help="folder for the plots (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=_positive, default=20, help="passes over the digits (default: %(default)s)")
    parser.add_argument(
        "--processes",
        type=_positive,
        default=1,
        metavar="N",
        help="more than one: train a sharded GPT with int8 weights in so many processes, and compare with one",
    )
    chosen = parser.parse_args(arguments)
    if chosen.processes > 1:
        from benchmarks.demo.processes import run as run_processes

        return run_processes(chosen.processes)
    missing = [name for name in ("sklearn", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        wanted = " and ".join(missing)
        print(
            f"the demo needs {wanted}; `make demo` installs that, and `pip install 'subclass-aot[demo]'`",
            file=sys.stderr,
        )
        return 1
    from benchmarks.demo.stages import run

    return run(chosen.out, chosen.epochs)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


if __name__ == "__main__":
    sys.exit(main())
