"""`torch.tensor` of numbers that are symbols."""

from __future__ import annotations

import math
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
    "as a tensor": lambda n: torch.as_tensor(n / 3) * 2,
    "as a tensor, a list": lambda n: torch.as_tensor([1.5, n / 3, 2]) * 2,
    "as an array": lambda n: torch.asarray(n / 3) * 2,
    "of another tensor": lambda n: torch.ones(2, dtype=torch.float64).new_tensor([n / 3, 2]),
    "of another tensor and dtype": lambda n: torch.ones(2).new_tensor(n / 3, dtype=torch.float64) * 2,
    "a whole number": lambda n: torch.tensor(math.floor(n)) * 2,
    "whole numbers": lambda n: torch.as_tensor([math.floor(n), 2]) * 2,
    "whole numbers of a dtype": lambda n: torch.tensor([math.floor(n), n], dtype=torch.int16) * 2,
    "a condition": lambda n: torch.tensor([n > 0, True]),
    "a leaf": lambda n: torch.tensor(n, requires_grad=True).detach() * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tensors_of_numbers(name: str) -> None:
    def program(x: Any) -> Any:
        return PROGRAMS[name](x.sum().item()) * x

    compiled = aot_compile(program, dynamic=True)
    for k in range(3):
        x = torch.arange(1.0, 2.0) + k
        assert torch.equal(compiled(x), program(x)) and compiled(x).dtype == program(x).dtype
    assert not compiled.recompiles


OF_TENSORS: list[Callable[[Any], Any]] = [
    lambda x: torch.tensor([x.max(), x.min()]),
    lambda x: torch.tensor([x.argmax() + 1, 2]),
    lambda x: torch.tensor([[x.sum(), 1], [2.0, x[0]]], dtype=torch.float64) * 2,
    lambda x: torch.tensor((x[:1], x[1:2])),
    lambda x: torch.as_tensor([x.max(), 2]),
    lambda x: torch.tensor([x.max() > 0, True]),
    lambda x: x * torch.tensor([x.sum()]).unsqueeze(1),
    lambda x: torch.tensor([x.max().long(), x.shape[0]]) - torch.tensor([torch.ones(()), x.max()]),
]


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"values": "refuse"}])
@pytest.mark.parametrize("program", range(len(OF_TENSORS)))
def test_lists_that_hold_tensors(program: int, options: dict[str, Any]) -> None:
    function = OF_TENSORS[program]
    compiled = aot_compile(function, **options)
    for size in (3, 3, 4):
        x = torch.randn(size, requires_grad=True)
        got, expected = compiled(x), function(x)
        assert torch.equal(got, expected)
        assert got.dtype == expected.dtype and got.requires_grad == expected.requires_grad
    assert len(compiled.recompiles) == (0 if options.get("dynamic") else 1)
