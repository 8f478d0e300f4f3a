"""Inductor's cache of compiled graphs on disk serves what this library compiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from subclass_aot import Int8Weight, TwoTensor, aot_compile

pytestmark = pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    counters.clear()
    yield
    counters.clear()


def found() -> tuple[int, int, int]:
    """Hits, misses and graphs that are not looked up."""
    seen = counters["inductor"]
    return seen["fxgraph_cache_hit"], seen["fxgraph_cache_miss"], seen["fxgraph_cache_bypass"]


def pair(*size: int) -> Any:
    return TwoTensor(torch.rand(size), torch.rand(size)).requires_grad_()


PROGRAMS = {
    "dense": (lambda x, y: (x @ y).sin(), lambda n: (torch.rand(n, 4).requires_grad_(), torch.rand(4, 3))),
    "wrappers": (lambda x, y: (x * y).exp(), lambda n: (pair(n, 4), torch.rand(n, 4).requires_grad_())),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_and_backward_are_found_again(name: str, dynamic: bool) -> None:
    program, make = PROGRAMS[name]
    for first in (True, False):
        args = make(5)
        compiled = aot_compile(program, fw_compiler="inductor", dynamic=dynamic)
        out = compiled(*args)
        out.sum().backward()
        assert found() == ((0, 2, 0) if first else (2, 2, 0))
        torch.testing.assert_close(out, program(*args))


def test_a_quantized_model_is_found_again() -> None:
    model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), torch.rand(3, 6)
    model[2].weight = nn.Parameter(Int8Weight.from_float(model[2].weight), requires_grad=False)
    for first in (True, False):
        out = aot_compile(model, fw_compiler="inductor")(x)
        out.sum().backward()
        assert found() == ((0, 2, 0) if first else (2, 2, 0))
        torch.testing.assert_close(out, model(x))


def test_what_is_found_has_the_strides_of_this_program() -> None:
    """Of two equal graphs one returns what the other only saves, and inductor may lay out anew what is only saved."""
    convolution = nn.Conv2d(3, 4, 3, padding=1).requires_grad_(False)
    x = torch.rand(2, 3, 8, 8, requires_grad=True)

    def saves(x: Any) -> Any:
        return convolution(x).sigmoid().square()

    def returns(x: Any) -> Any:
        y = convolution(x).sigmoid()
        return y.square(), y

    for program in (saves, returns, saves):
        compiled = aot_compile(program, fw_compiler="inductor")
        out, expected = compiled(x), program(x)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (out, expected)), strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b)
        got = torch.autograd.grad(sum(r.sum() for r in out) if isinstance(out, tuple) else out.sum(), x)
        want = torch.autograd.grad(sum(r.sum() for r in expected) if isinstance(expected, tuple) else expected.sum(), x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def after_steps(x: Any, count: Any) -> Any:
    if x.sum() > 0:
        x = x * (1 - 0.9 ** count.item())
    return x * count.item()


def bounded(x: Any, count: Any) -> Any:
    y = x * max(1e-3, count.item())
    if y.sum() > 3:
        y = y / count.item() ** 0.5
    return y * count.item()


@pytest.mark.parametrize("program", [after_steps, bounded])
def test_graphs_with_floats_that_depend_on_data_are_found_again(program: Any) -> None:
    """As those of an optimizer that reads how many steps it has made."""
    for first in (True, False):
        compiled = aot_compile(program, fw_compiler="inductor")
        for count in range(1, 6):
            x, steps = torch.rand(8), torch.tensor(float(count))
            torch.testing.assert_close(compiled(x, steps), program(x, steps))
        hits, misses, bypassed = found()
        assert bypassed == 0 and (misses if first else hits) > 0
        if first:
            compiled_then = misses
    assert misses == compiled_then
