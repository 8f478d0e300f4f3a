"""Calls of a function behind `torch.compile(backend="subclass_aot")`, compared with eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subclass_aot.testing.runs import differences, observe

Make = Callable[[int], list[Any]]
"""The arguments of one call, by its number."""


def rand(*size: int, grad: bool = False, cls: Any = None) -> Any:
    made = torch.rand(size) if cls is None else cls(torch.rand(size), torch.rand(size))
    return made.requires_grad_(grad)


def made_by(make: Make, call: int) -> tuple[list[Any], list[Any]]:
    torch.manual_seed(call)
    arguments = make(call)
    return arguments, [x for x in arguments if isinstance(x, Tensor) and x.requires_grad and x.is_leaf]


def check(program: Any, make: Make, calls: int = 3, **options: Any) -> None:
    """Compares calls with eager mode: results, arguments, sharing, version counters, gradients."""
    compiled = torch.compile(program, **{"backend": "subclass_aot", "fullgraph": True, **options})
    for call in range(calls):
        expected = observe(program, made_by(make, call))
        assert expected.error is None, expected.error
        found = observe(compiled, made_by(make, call), like=expected)
        if found.error is not None:
            raise found.error
        assert not list(differences(expected, found))
