"""The dtype that follows from a default one is said where the operators run with another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from subclass_aot.errors import TraceError
from subclass_aot.meta.default_dtype import with_dtype
from tests.engine.graph.recording import recorded

aten: Any = torch.ops.aten


@contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def nodes_of(program: Callable[..., Any]) -> list[tuple[str, Any]]:
    """What was recorded in a block of another default dtype: names, and the dtypes that are said."""

    def inside(x: Any) -> Any:
        n = torch.arange(3)
        with default(torch.float64):
            return program(n)

    recorder, _ = recorded(inside)
    nodes = [n for n in recorder.in_order() if n.op == "call_function"][1:]
    return [(n.name, n.kwargs.get("dtype")) for n in nodes]


CASES: dict[str, tuple[Callable[..., Any], list[tuple[str, Any]]]] = {
    "a factory": (lambda n: torch.ones(2), [("ones", torch.float64)]),
    "a factory of whole numbers": (lambda n: torch.arange(3), [("arange_1", None)]),
    "a factory that says it": (lambda n: torch.ones(2, dtype=torch.float32), [("ones", torch.float32)]),
    "a division": (lambda n: n / n, [("_to_copy", torch.float64), ("_to_copy_1", torch.float64), ("div", None)]),
    "a number": (lambda n: n * 2.5, [("_to_copy", torch.float64), ("mul", None)]),
    "a complex number": (lambda n: n * 1j, [("_to_copy", torch.float64), ("mul", None)]),
    "whole numbers": (lambda n: n * 2, [("mul", None)]),
    "a list": (
        lambda n: torch._foreach_sqrt([n]), [("_to_copy", torch.float64), ("_foreach_sqrt", None), ("getitem", None)]
    ),
    "another dtype": (lambda n: n.to(torch.float32) / n, [("_to_copy", torch.float32), ("div", None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_recorded(name: str) -> None:
    program, expected = CASES[name]
    assert nodes_of(program) == expected


def test_what_cannot_be_said_is_refused() -> None:
    def cast(leaf: Any, dtype: torch.dtype) -> Any:
        return leaf

    with default(torch.float64), pytest.raises(TraceError, match=r"(?s)aten.sqrt.default depends on the default dtype"):
        recorded(lambda x: with_dtype(aten.sqrt.default, (torch.arange(3),), {}, torch.float32, cast))
