"""Counts what first calls and hits take, without a clock. `python -m tests.budget` writes `budget.toml` anew.

The accelerator is off, and each program has run before: so the numbers are the same on each machine, with one Python
and one torch.
"""

from __future__ import annotations

import ast
import collections
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

TABLE = Path(__file__).with_name("budget.toml")


def measured() -> dict[str, dict[str, int]]:
    """Returns what `budget.toml` has, as it is now: counted in a process of its own."""
    environment = {**os.environ, "SUBCLASS_AOT_NATIVE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.budget", "--count"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert not ran.returncode, ran.stderr
    return tomllib.loads(ran.stdout)


def table() -> dict[str, dict[str, int]]:
    """Returns what is allowed."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def _counted() -> dict[str, dict[str, int]]:
    import torch
    from torch import nn

    import subclass_aot as sa

    package = Path(sa.__file__).parent
    x, requires_grad = torch.ones(3, 4), torch.ones(3, 4, requires_grad=True)
    wrapper = sa.TwoTensor(torch.ones(3, 4), torch.ones(3, 4))
    layers = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(8, 8), nn.ReLU())])
    image = torch.ones(1, 3, 16, 16)
    vit = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4),
        nn.Flatten(2),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False),
    )

    def dense() -> None:
        with torch.no_grad():
            sa.aot_compile(lambda x: x * 2)(x)

    programs: dict[str, Callable[[], object]] = {
        "x * 2, inference": dense,
        "wrapper * x, training": lambda: sa.aot_compile(lambda w, x: w * x)(wrapper, requires_grad),
        "24 layers, forward and backward": lambda: sa.aot_compile(layers)(torch.ones(2, 8)).sum().backward(),
    }
    found: dict[str, dict[str, int]] = {"functions": {}, "calls": {}, "frames": {}}
    for name, program in programs.items():
        for _ in range(2):
            program()
        with _watched(package) as seen:
            program()
        found["functions"][name] = len(_functions(package) & seen.keys())
        if name == "x * 2, inference":
            files = collections.Counter(file for file, _ in _functions(package) & seen.keys())
            found["files"] = dict(sorted(files.items()))
    vit(image)
    sa.trace_joint(vit, image)
    with _watched(package) as seen:
        joint = sa.trace_joint(vit, image)
    calls = round(seen.total() / len(joint.graph_module.graph.nodes))
    found["calls"]["a joint trace of a ViT of 2 layers, for each node"] = calls
    hit, training = sa.aot_compile(lambda x: x * 2), sa.aot_compile(lambda x: x.sin())
    for name, compiled, given in (("a hit", hit, x), ("a training hit", training, requires_grad)):
        for _ in range(3):
            compiled(given)
        with _watched(package, generated=True) as seen:
            compiled(given)
        found["frames"][name] = seen.total()
    return found


def _functions(package: Path) -> set[tuple[str, int]]:
    """Returns the functions of the package: their files and first lines. Comprehensions are none."""
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                lines = [node.lineno, *(each.lineno for each in node.decorator_list)]
                found.add((str(path.relative_to(package)), min(lines)))
    return found


@contextmanager
def _watched(package: Path, generated: bool = False) -> Iterator[collections.Counter[tuple[str, int]]]:
    """Counts the calls of Python functions of the package in a block; of generated ones, too, if that is asked for."""
    seen: collections.Counter[tuple[str, int]] = collections.Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{package}{os.sep}"):
            seen[str(Path(file).relative_to(package)), frame.f_code.co_firstlineno] += 1
        elif event == "call" and generated and file.startswith("<subclass_aot generated"):
            seen[file, frame.f_code.co_firstlineno] += 1

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def _text(found: dict[str, dict[str, int]]) -> str:
    parts = []
    for name, numbers in found.items():
        parts += [f"[{name}]", *(f'"{key}" = {number}' for key, number in numbers.items()), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    if "--count" in sys.argv:
        print(_text(_counted()))
    else:
        TABLE.write_text(_text(measured()), encoding="utf-8")
