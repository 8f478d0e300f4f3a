"""First calls, second calls and hits take a time that is linear in the size of a program: calls are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import pytest
import torch
from torch import nn

from subclass_aot import TwoTensor, aot_compile
from tests.growing import superlinear

Program = tuple[Callable[..., Any], tuple[Any, ...]]
SIZE = 24


def numbers(*size: int) -> torch.Tensor:
    return torch.ones(size, requires_grad=True)


def many_results(n: int) -> Program:
    return lambda x: [x * i for i in range(n)], (numbers(3),)


def many_wrappers(n: int) -> Program:
    xs = [TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_() for _ in range(n)]
    return lambda *xs: [x * 2 for x in xs], tuple(xs)


def results_without_gradient(n: int) -> Program:
    return lambda x: ([x * i for i in range(n)], [(x * i).detach() for i in range(n)]), (numbers(3),)


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * 3 + weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 3, gradient


def functions_of_autograd(n: int) -> Program:
    def function(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = Triple.apply(x, weight)  # type: ignore[no-untyped-call]
        return x

    return function, tuple(numbers(2) for _ in range(n + 1))


def written_under_autograd(n: int) -> Program:
    def function(*xs: torch.Tensor) -> list[torch.Tensor]:
        for x in xs:
            x.mul_(2)
        return [x * 3 for x in xs]

    return function, tuple(numbers(2) * 1 for _ in range(n))


def views_of_one_written(n: int) -> Program:
    base = numbers(n, 2) * 1
    return written_under_autograd(n)[0], tuple(base[i] for i in range(n))


class Deep(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(2, 2), Deep(depth - 1) if depth else None

    def forward(self, x: torch.Tensor) -> Any:
        x = self.layer(x)
        return x if self.inner is None else self.inner(x)


def deep_modules(n: int) -> Program:
    return Deep(n), (torch.ones(2, 2),)


PROGRAMS = [
    many_results, many_wrappers, results_without_gradient, functions_of_autograd, written_under_autograd,
    views_of_one_written, deep_modules,
]  # fmt: skip


def results_of(compiled: Any, arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    made: Any = optree.tree_leaves(compiled(*arguments))
    return [x for x in made if x.requires_grad]


def back(results: list[torch.Tensor], arguments: tuple[Any, ...], used: int | None = None) -> None:
    chosen = results[:used]
    torch.autograd.backward(chosen, [torch.ones_like(x) for x in chosen])
    for x in arguments:
        x.grad = None


@pytest.mark.every_case
@pytest.mark.parametrize("program", PROGRAMS)
def test_first_calls_are_linear(program: Callable[[int], Program]) -> None:
    def call(n: int) -> Callable[[], None]:
        function, arguments = program(n)
        return lambda: back(results_of(aot_compile(function), arguments), arguments)

    call(4)()
    allowed = {"named_modules"} if program is deep_modules else set()  # torch's own: a generator for each level
    found = superlinear(call, SIZE)
    assert {name for name in found if name.split()[-1] not in allowed} == set(), found


@pytest.mark.parametrize("make", [lambda n: TwoTensor(torch.ones(n), torch.ones(n)), torch.ones])
def test_calls_with_other_sizes_are_linear(make: Callable[[int], torch.Tensor]) -> None:
    def call(n: int) -> Callable[[], Any]:
        compiled = aot_compile(lambda *xs: [x * 2 for x in xs])
        compiled(*[make(3) for _ in range(n)])
        return lambda: compiled(*[make(5) for _ in range(n)])

    call(2 * SIZE)()  # sympy caches what it knows of a symbol
    assert superlinear(call, SIZE) == {}


@pytest.mark.parametrize("used", [1, SIZE // 2])
def test_hits_are_linear_where_few_results_have_a_gradient(used: int) -> None:
    def call(n: int) -> Callable[[], None]:
        function, arguments = many_results(n)
        compiled = aot_compile(function)
        back(results_of(compiled, arguments), arguments, used)
        return lambda: back(results_of(compiled, arguments), arguments, used)

    assert superlinear(call, 2 * SIZE) == {}
