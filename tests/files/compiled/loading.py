"""Loads a file in a process of its own, where nothing can be traced.

python -m tests.files.compiled.loading FOLDER NAME...
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.engine import compile
from tests.files.compiled.programs import PROGRAMS
from tests.files.compiled.test_programs import run


def main(folder: str, *names: str) -> None:
    """Compares what is loaded with what was seen in the other process."""

    def not_traced(*args: object, **kwargs: object) -> Any:
        raise AssertionError("this was traced")

    compile.trace_arguments = not_traced
    for name in names:
        fn, make, kwargs = PROGRAMS[name]
        expected, file = torch.load(f"{folder}/{name}.pt", weights_only=False), f"{folder}/{name}.sa"
        for own in (fn,) if isinstance(fn, nn.Module) else (fn, None):
            torch.manual_seed(0)
            assert run(sa.load_compiled(file, own, trust=True), make(), kwargs) == expected, name
    print("all the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
