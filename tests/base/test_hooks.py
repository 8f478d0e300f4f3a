"""Native code stands where Python would: in the places of `hooks`, and nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base import exact, hooks
from subclass_aot.native import put_in_place

PACKAGE = Path(hooks.__file__).parents[1]


def test_no_room_asks_for_native_code() -> None:
    """The package installs it, and those tell of it whom a user asks: nobody else imports it."""
    tell = {PACKAGE / "__init__.py", PACKAGE / "__main__.py", PACKAGE / "testing" / "benchmark" / "report.py"}
    found = []
    for path in {*PACKAGE.rglob("*.py")} - tell:
        for node in ast.walk(ast.parse(path.read_text())):
            of = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if of.endswith(".native") or any(name.endswith("native") for name in names):
                found.append(path)
    assert {path.parent.name for path in found} <= {"native"}


def test_python_runs_without_native_code() -> None:
    program = (
        "import os; os.environ['SUBCLASS_AOT_NATIVE'] = '0'\n"
        "import subclass_aot\n"
        "from subclass_aot.base import exact, hooks\n"
        "print([n for n in hooks.__annotations__ if getattr(hooks, n) is not getattr(exact, n, None)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_build_is_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    monkeypatch.setattr(hooks, "at_first_compile", lambda: begun.append(1))
    for _ in range(2):
        sa.aot_compile(torch.sin)(torch.ones(2))
    assert begun == [1] and hooks.at_first_compile is None


def test_a_part_is_put_in_place_and_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*hooks.__annotations__, "one_call_pays"):
        monkeypatch.setattr(hooks, name, getattr(hooks, name))

    class Module:
        """Has what the accelerator has."""

        Recipe = Modes = exactly = are_exactly = have_exactly = same_items = hold = staticmethod(len)

    module: Any = Module
    put_in_place("recipes", module)
    put_in_place("kernels", module)
    put_in_place("leaves", module)
    put_in_place("exact", module)
    assert (
        hooks.make_recipe is len
        and hooks.kernels is hooks.leaves is module
        and hooks.hold is len
        and hooks.one_call_pays
    )
    for part in ("recipes", "kernels", "leaves", "exact"):
        put_in_place(part, None)
    assert (
        hooks.make_recipe is hooks.kernels is hooks.leaves is None
        and hooks.hold is exact.hold
        and not hooks.one_call_pays
    )
