"""Symbolic numbers in text and as keys: the program has the number, and torch has its symbol."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, mark_dynamic, trace_joint
from subclass_aot.trace.text import numbers_are_written_out

NAMES = {4: "four", 5: "five"}


def methods() -> list[Any]:
    found = [(cls, name) for cls in (torch.SymInt, torch.SymFloat) for name in ("__str__", "__format__", "__hash__")]
    return [cls.__dict__.get(name) for cls, name in found]


METHODS = methods()
"""Before any trace."""

_OF_TORCH: dict[str, Any] = {}
exec(compile("def text_of(number): return str(number)", torch.__file__, "exec"), _OF_TORCH)


def four_rows() -> torch.Tensor:
    x = torch.rand(4, 2)
    mark_dynamic(x, 0)
    return x


@pytest.mark.parametrize(
    "write, expected",
    [
        (str, "4"),
        (lambda n: f"{n:03d} rows", "004 rows"),
        (lambda n: f"{n * 0.5:.2f}", "2.00"),
        (NAMES.__getitem__, "four"),
    ],
    ids=["str", "format", "a float", "a key"],
)
def test_the_program_has_the_number_and_each_call_its_own(write: Any, expected: str) -> None:
    x = four_rows()
    assert trace_joint(lambda x: write(x.shape[0]), x).signature.outcome.literals == [expected]
    compiled = aot_compile(lambda x: write(x.shape[0]), dynamic=True)
    for rows in (4, 5, 4):
        assert compiled(torch.rand(rows, 2)) == write(rows)


def test_torch_has_the_symbol() -> None:
    trace = trace_joint(lambda x: (_OF_TORCH["text_of"](x.shape[0]), x * x.shape[0]), four_rows())
    (text,) = trace.signature.outcome.literals
    assert re.fullmatch(r"s\d+", text)
    assert torch.equal(trace.graph_module(torch.ones(5, 2))[0], torch.full((5, 2), 5.0))


def test_a_ragged_size_is_no_number_and_stays_what_torch_says() -> None:
    size = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).shape[1]
    before = str(size), hash(size)
    with numbers_are_written_out():
        assert (str(size), hash(size)) == before


def test_afterwards_the_classes_are_as_they_were() -> None:
    with pytest.raises(ZeroDivisionError), numbers_are_written_out():
        assert methods() != METHODS
        print(1 // 0)
    assert methods() == METHODS
