"""`torch.tensor` of numbers that are symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a number": lambda n: torch.tensor(n) * 2,
    "of a dtype": lambda n: torch.tensor(n, dtype=torch.float64) * 2,
    "a list": lambda n: torch.tensor([n, 1.0, n * 2]) + 1,
    "a tuple": lambda n: torch.tensor((n, n), device="cpu") + 1,
    "an index": lambda n: torch.tensor([n, 1]) + 1,
    "a list in a list": lambda n: torch.tensor([[n], [2.0]]) + 1,
    "a leaf": lambda n: torch.tensor(n, requires_grad=True) * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tensors_of_numbers(name: str) -> None:
    def program(x: Any) -> Any:
        return PROGRAMS[name](x.sum().item()) * x

    compiled = aot_compile(program, dynamic=True)
    for k in range(3):
        x = torch.arange(1.0, 2.0) + k
        assert torch.equal(compiled(x), program(x)) and compiled(x).dtype == program(x).dtype
    assert name in ("an index", "a list in a list") or not compiled.recompiles
