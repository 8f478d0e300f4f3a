"""Caches of `functools` that a traced function fills."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import aot_compile
from subclass_aot.lru_caches import forget_in_caches


@functools.cache
def unbounded(n: int) -> torch.Tensor:
    return torch.arange(n) / n


@functools.lru_cache(maxsize=4)
def bounded(n: int) -> torch.Tensor:
    return torch.arange(n) / n


@functools.cache
def several(n: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {"rotary": (torch.arange(n).cos(), torch.arange(n).sin())}


@functools.cache
def nested(n: int) -> torch.Tensor:
    return unbounded(n) * 2


@functools.cache
def by_tensor(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


class Model(nn.Module):
    @functools.lru_cache(maxsize=8)  # noqa: B019
    def table(self, n: int) -> torch.Tensor:
        return torch.arange(n) / n

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table(x.shape[0])


MODEL = Model()
CACHES = (unbounded, bounded, several, nested, by_tensor, Model.table)
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "unbounded": lambda x: x * unbounded(x.shape[0]),
    "bounded": lambda x: x * bounded(x.shape[0]),
    "several": lambda x: x * several(x.shape[0])["rotary"][0] + several(x.shape[0])["rotary"][1],
    "nested": lambda x: x * nested(x.shape[0]),
    "by tensor": lambda x: x * by_tensor(x),
    "a method": MODEL,
    "returned": lambda x: (x * 2, unbounded(x.shape[0])),
    "reads a value": lambda x: x * unbounded(x.shape[0]) if x.sum() > 0 else x - unbounded(x.shape[0]),
}


@pytest.fixture(autouse=True)
def empty_caches() -> None:
    for cache in CACHES:
        cache.cache_clear()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_cache_computes_anew_what_a_trace_has_put_there(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for n in (4, 4, 5, 4, 6):
        x = torch.rand(n, requires_grad=True)
        results = []
        for function in (compiled, program):
            result = function(x)
            first = result[0] if isinstance(result, tuple) else result
            results.append((result, torch.autograd.grad(first.sum(), x)))
        torch.testing.assert_close(*results)


def test_what_eager_mode_has_cached_stays() -> None:
    before = bounded(4)
    compiled = aot_compile(lambda x: x * bounded(4))
    assert torch.equal(compiled(torch.ones(4)), before) and bounded(4) is before


def test_after_a_trace_that_fails() -> None:
    def program(x: torch.Tensor, fails: bool) -> torch.Tensor:
        y = x * unbounded(4)
        if fails:
            raise ValueError("the program's own")
        return y

    compiled = aot_compile(program)
    with pytest.raises(ValueError, match="the program's own"):
        compiled(torch.ones(4), True)
    assert torch.equal(program(torch.ones(4), False), torch.arange(4) / 4)
    assert torch.equal(compiled(torch.ones(4), False), torch.arange(4) / 4)


def test_other_holders_are_left_alone() -> None:
    tensor = torch.ones(2)
    assert not forget_in_caches([tensor]) and not forget_in_caches([])
    held = by_tensor(tensor)
    assert forget_in_caches([held]) and by_tensor.cache_info().currsize == 0
