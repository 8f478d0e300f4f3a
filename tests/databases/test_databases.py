"""Torch's own test databases by both doors, with the compiler "eager" and with inductor, against eager mode.

What is compared, at each of several calls: results, gradients, arguments and state afterwards, and what shares memory
with what. `exceptions.toml` lists what does not compile, with the reason; the list is exact in both directions.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, inductor
from tests.databases.cases import DATABASES, Case, cases, compare, run

pytestmark = [
    pytest.mark.every_case,
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore"),
]

EXCEPTIONS: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "exceptions.toml").read_text())
"""For each database and door: a pattern of names, and the words of the error, or of the difference."""

DOORS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "aot_compile": {
        "eager": aot_compile,
        "inductor": lambda function: aot_compile(function, fw_compiler=inductor(fallback_random=True)),
    },
    "torch.compile": {
        "eager": lambda function: torch.compile(function, backend="subclass_aot"),
        "inductor": lambda function: torch.compile(
            function, backend="subclass_aot", options={"fw_compiler": "inductor", "fallback_random": True}
        ),
    },
}
TOLERANCE: dict[str, dict[str, float]] = {"eager": {}, "inductor": {"rtol": 1e-3, "atol": 1e-4}}
"""Kernels that fuse operators round otherwise."""

COUNTED = {
    "op_db": 680,
    "writing_op_db": 650,
    "module_db": 200,
    "optim_db": 200,
    "hop_db": 12,
    "custom_op_db": 11,
    "autograd_function_db": 14,
}
"""At least how many cases eager mode runs."""


def difference(case: Case, door: str, compiler: str) -> str | None:
    """Returns how a compiled program differs from eager mode, or its error; "" if it does not, None if eager fails."""
    try:
        program = case.program()
        expected = run(program, program.function)
    except Exception:
        return None
    torch.compiler.reset()
    try:
        program = case.program()
        found = run(program, DOORS[door][compiler](program.function))
        for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            for part in ("results", "gradients", "inputs", "state", "aliases"):
                a, b = getattr(ours, part), getattr(theirs, part)
                compare(a, b, f"call {i}: {part}", program.is_determined, **TOLERANCE[compiler])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check(found: dict[str, str | None], listed: dict[str, str], at_least: int = 0) -> None:
    """Asserts that what fails is what is listed, with those words, and that enough was tried."""
    words = {name: text for name in found for pattern, text in listed.items() if fnmatchcase(name, pattern)}
    failing = {name: text for name, text in found.items() if text}
    unlisted = [f"{name}: {text}" for name, text in failing.items() if words.get(name, "\0") not in text]
    passing = sorted(name for name in words if found[name] == "")
    assert not unlisted, "\n".join(unlisted)
    assert not passing, f"listed, but right: {passing}"
    assert sum(text is not None for text in found.values()) >= at_least


def exceptions(database: str, door: str, compiler: str) -> dict[str, str]:
    """Returns the exceptions of a database by a door with a compiler."""
    found: dict[str, str] = {}
    for table in (database, f"{database}, {door}", f"{database}, {compiler}", f"{database}, {door}, {compiler}"):
        found |= EXCEPTIONS.get(table, {})
    return found


SHORT = {("hop_db", "aot_compile"), ("custom_op_db", "torch.compile"), ("autograd_function_db", "aot_compile")}
"""What `make test` has time for with "eager"; `make test-all` runs all."""


@pytest.mark.parametrize(
    ("database", "door"),
    [
        pytest.param(database, door, marks=[] if (database, door) in SHORT else [pytest.mark.long])
        for database in DATABASES
        for door in DOORS
    ],
)
def test_eager(database: str, door: str) -> None:
    found = {case.name: difference(case, door, "eager") for case in cases(database)}
    check(found, exceptions(database, door, "eager"), COUNTED[database])


PARTS = 20
"""A database is tried by inductor in so many tests: the compiler of C++ takes some seconds for each program."""


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("database", DATABASES)
def test_inductor(database: str, door: str, part: int) -> None:
    found = {case.name: difference(case, door, "inductor") for case in cases(database)[part::PARTS]}
    check(found, exceptions(database, door, "inductor"))


SAMPLE = {"op_db": 6, "writing_op_db": 2, "module_db": 2, "hop_db": 1, "autograd_function_db": 1}
"""How many programs of each database `make test` compiles with inductor, by one door and the other in turn.

Sixty would take five minutes of the compiler of C++; `make test-all` takes all.
"""


@pytest.mark.parametrize("database", SAMPLE)
def test_a_sample_by_inductor(database: str) -> None:
    every = len(cases(database)) // SAMPLE[database]
    sample = cases(database)[every // 2 :: every][: SAMPLE[database]]
    for number, case in enumerate(sample):
        door = list(DOORS)[number % 2]
        check({case.name: difference(case, door, "inductor")}, exceptions(database, door, "inductor"))


def test_each_exception_is_in_a_database() -> None:
    for table, listed in EXCEPTIONS.items():
        names = [case.name for case in cases(table.split(",")[0])]
        for pattern in listed:
            assert any(fnmatchcase(name, pattern) for name in names), pattern
