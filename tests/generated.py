"""The generated code of ten programs, to be read: `python -m tests.generated FOLDER` writes each into a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import subclass_aot as sa


class Program(NamedTuple):
    """A function, a call of it, and how many lines are generated for that.

    Attributes:
        fn: The function.
        args: The arguments.
        most: At most so many lines of code; blank lines and comments are not counted.
        mode: What the call runs in.
        options: Those of `aot_compile`.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    most: int
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext
    options: dict[str, Any] = {}  # noqa: RUF012


def two(*size: int, grad: bool = False) -> Any:
    return sa.TwoTensor(torch.ones(*size), torch.ones(*size)).requires_grad_(grad)


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y + 1


def hooked(x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad.sum()))
    return y.sin()


def programs() -> dict[str, Program]:
    """Makes the programs: modules and tensors are new each time."""
    memory, norm = torch.arange(8.0), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    leaf = torch.ones(3, requires_grad=True)
    return {
        "a plain function": Program(lambda x, y: (x @ y).relu(), (torch.ones(2, 3), torch.ones(3, 4)), 13),
        "a module whose buffers change": Program(norm, (torch.ones(2, 4),), 88),
        "wrappers in and out": Program(lambda x, y: x * y + 1, (two(3), two(3)), 21),
        "views of one storage, written": Program(writes, (memory[:4], memory[2:6]), 19),
        "a wrapper that is written": Program(writes, (two(3), two(3)), 24),
        "dropout in training": Program(nn.Sequential(nn.Linear(4, 4), nn.Dropout()), (torch.ones(2, 4),), 73),
        "autocast": Program(nn.Linear(4, 4), (torch.ones(2, 4),), 63, lambda: torch.autocast("cpu", torch.bfloat16)),
        "hooks in backward": Program(hooked, (leaf, []), 49),
        "nested wrappers": Program(lambda x: x.t() @ x, (sa.TwoTensor(two(2, 3), two(2, 3)),), 28),
        "sizes that are symbols": Program(
            lambda x, y: x.reshape(-1, 2) + y, (two(4, 3, grad=True), torch.ones(2)), 83, options={"dynamic": True}
        ),
    }


def code_of(program: Program) -> str:
    """Returns the generated functions of a call."""
    compiled = sa.aot_compile(program.fn, fw_compiler="eager", **program.options)
    with program.mode():
        return compiled.stages(*program.args).code


def lines_of(code: str) -> int:
    """Counts lines of code."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in code.splitlines())


def main() -> None:
    """Writes the files, and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in programs().items():
        code = code_of(program)
        (folder / f"{name.replace(',', '').replace(' ', '_')}.py").write_text(code + "\n")
        print(f"{lines_of(code):4} {name}")


if __name__ == "__main__":
    main()
