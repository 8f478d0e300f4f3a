"""What `aot_compile` and `compile_blocks` made, inside a function that `torch.compile` compiles."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subclass_aot import Int8Weight, aot_compile, compile_blocks, quantize_

BACKENDS = ["subclass_aot", "aot_eager"]


def program(x: Tensor) -> Tensor:
    return (x * 2).sin()


def looks(x: Tensor) -> Tensor:
    """Dynamo cannot inline it, and calls what was compiled as it is."""
    return (x * 2).sin() if x.sum() > 0 else x


def same(function: Callable[[Tensor], Tensor], expected: Callable[[Tensor], Tensor]) -> None:
    for size in 3, 3, 5:
        x = torch.rand(size, 4)
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, wanted = function(mine), expected(other)
        torch.testing.assert_close(found, wanted)
        found.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("inner", [program, looks])
@pytest.mark.parametrize("ran_before", [False, True])
def test_a_compiled_function(inner: Callable[[Tensor], Tensor], backend: str, ran_before: bool) -> None:
    compiled = aot_compile(inner)
    if ran_before:
        compiled(torch.rand(3, 4))
    same(torch.compile(lambda x: compiled(x) + 1, backend=backend), lambda x: inner(x) + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_function_that_stays_compiled(backend: str) -> None:
    compiled: Any = torch.compiler.disable(aot_compile(program))
    same(torch.compile(lambda x: compiled(x) + 1, backend=backend), lambda x: program(x) + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_twice(backend: str) -> None:
    same(torch.compile(aot_compile(program), backend=backend, fullgraph=True), program)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear(x).relu()
        return made


class Looking(Block):
    """Dynamo cannot inline it."""

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear(x)
        return made.relu() if made.isfinite().all() else x


class Model(nn.Module):
    def __init__(self, block: type[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block() for _ in range(2)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.head(x)
        return made


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [Block, Looking])
@pytest.mark.parametrize("how", ["blocks", "a forward", "the head"])
def test_a_model_of_which_a_part_is_compiled(how: str, block: type[Block], backend: str) -> None:
    model = Model(block)
    quantize_(model.blocks, Int8Weight)
    part: Any = copy.deepcopy(model)
    if how == "blocks":
        compile_blocks(part)
    elif how == "a forward":
        part.blocks[0].forward = aot_compile(part.blocks[0].forward)
    else:
        part.head.forward = aot_compile(part.head.forward)
    same(torch.compile(part, backend=backend), model)
    for mine, other in zip(part.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
