"""The command line: `python -m subclass_aot inspect MODULE:CLASS`, `check`, `bench`, `profile`,
`measure`, and `build-native`."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from subclass_aot.base.whole_files import write_whole
from subclass_aot.command_line import make_parser
from subclass_aot.errors import SubclassAotError
from subclass_aot.testing.progress import shown_on_a_terminal, tell


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: The words after the program's name; those of this process when left out.

    Returns:
        The exit status: 0 for yes, 1 for no, 2 where nothing is answered.
    """
    chosen = make_parser().parse_args(arguments)
    if (nowhere := _no_folder(chosen)) is not None:
        return _fail(nowhere)
    if chosen.command == "bench":
        return _bench(chosen.target, chosen.quick, chosen.json, chosen.plot)
    if chosen.command == "profile":
        return _profile(chosen)
    if chosen.command == "measure":
        return _measure(chosen.device, chosen.out)
    if chosen.command == "build-native":
        return _build_native()
    return _inspect(chosen.target) if chosen.command == "inspect" else _check(chosen.target, chosen.only, chosen.quick)


def _no_folder(options: argparse.Namespace) -> str | None:
    """Says which file that is to be written has no folder, before anything is computed for it."""
    for name in ("json", "plot", "memory_viz", "out"):
        file = getattr(options, name, None)
        if file is not None and not file.absolute().parent.is_dir():
            return f"--{name.replace('_', '-')} {file}: there is no folder {file.absolute().parent}"
    return None


def _inspect(target: str) -> int:
    from subclass_aot.testing.inspection import describe, describe_file, find_class

    try:
        print(describe_file(target) if Path(target).is_file() else describe(*find_class(target)))
    except (SubclassAotError, PermissionError) as error:
        return _fail(str(error))
    return 0


def _check(target: str, only: list[int] | None, quick: bool) -> int:
    from subclass_aot.testing import check_subclass

    try:
        make = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        return _fail(f"there is no {target}: {error}")
    if not callable(make):
        return _fail(f"{target} is a {type(make).__name__}; a function that gives a new tensor is wanted")
    if owed := _owed(make):
        what = "class" if isinstance(make, type) else "function"
        return _fail(
            f"{target} is a {what} that needs the arguments {', '.join(owed)}; write a function without any that "
            "returns a new tensor, and name it as MODULE:FUNCTION"
        )
    try:
        with shown_on_a_terminal():
            report = check_subclass(make, only=only, quick=quick, tell=tell)
    except (ImportError, TypeError, ValueError) as error:  # of hypothesis, which is missing; of `make`
        return _fail(str(error))
    print(report)
    return 1 if report.broken else 0


def _owed(make: Callable[..., object]) -> list[str]:
    """Returns the names of arguments that have to be given."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in parameters if each.default is each.empty and each.kind in kinds]


def _measure(device: str, out: Path | None) -> int:
    from subclass_aot.cost.devices import measure

    try:
        found = measure(device)
    except (SubclassAotError, RuntimeError) as error:  # torch knows no device of that name
        return _fail(str(error))
    if out is None:
        print(found.to_toml(), end="")
    else:
        found.write(out)
    return 0


def _bench(target: str, quick: bool, json_file: Path | None, picture: Path | None) -> int:
    if picture is not None and importlib.util.find_spec("matplotlib") is None:
        return _fail("--plot needs matplotlib; install with: pip install 'subclass-aot[demo]'")
    from subclass_aot.testing.benchmark import QUICK, Budget, bench, find_maker, plot

    try:
        with shown_on_a_terminal():
            report = bench(find_maker(target), QUICK if quick else Budget())
    except SubclassAotError as error:
        return _fail(str(error))
    print(report)
    if json_file is not None:
        write_whole(json_file, json.dumps(report.as_json(), indent=1) + "\n")
    if picture is not None:
        plot(report, picture)
    return 0


def _profile(options: argparse.Namespace) -> int:
    from subclass_aot.cost.profiling import run_command

    try:
        return run_command(options)
    except SubclassAotError as error:
        return _fail(str(error))


def _build_native() -> int:
    from subclass_aot.native import build_accelerator, build_exact

    try:
        print(f"built {build_exact()}\nbuilt {build_accelerator()}")
    except (RuntimeError, OSError) as error:
        return _fail(f"not everything was built, and all works without it: {error}", 1)
    return 0


def _fail(message: str, status: int = 2) -> int:
    print(f"python -m subclass_aot: {message}", file=sys.stderr)
    return status


def _run() -> int:
    """Runs the command of this process; who interrupts it, or closes its output as `head` does, gets no traceback."""
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the end of the process says it again
        return 128 + signal.SIGPIPE
    return status


if __name__ == "__main__":
    sys.exit(_run())
