"""The list of tests in which the function itself may run."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import torch

from subclass_aot import aot_compile
from tests import itself

ROOT = Path(__file__).resolve().parents[1]


def test_each_test_in_the_list_exists() -> None:
    for name in itself.allowed():
        path, _, function = name.partition("::")
        functions = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
        assert function.rpartition("::")[2] in functions, name


def test_a_warning_that_is_ignored_is_seen() -> None:
    """This test is in the list."""
    compiled = aot_compile(lambda x, steps: x + next(steps))
    with itself.watched() as seen, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compiled(torch.ones(1), iter([2])) == 3
    assert len(seen) == 1
    assert "the function itself ran" in seen[0]
