"""Random draws by inductor: inductor's own by default, and those of eager mode under `fallback_random`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile
from subclass_aot.backends import inductor
from subclass_aot.backends.draws import inductor_decompositions
from subclass_aot.errors import SubclassAotError

pytestmark = pytest.mark.filterwarnings("ignore")

NORM = nn.LayerNorm(32)
RMS = nn.RMSNorm(32)

DROPPED: dict[str, Callable[[Any], Any]] = {
    "dropout of a layer norm": lambda x: F.dropout(NORM(x), 0.3),
    "of an RMS norm": lambda x: F.dropout(RMS(x), 0.3),
    "of what sums to one": lambda x: F.dropout(x / x.sum(-1, keepdim=True), 0.3),
    "of a softmax": lambda x: F.dropout(x.softmax(-1), 0.3),
    "channels": lambda x: F.dropout1d(NORM(x), 0.3),
    "by hand": lambda x: (lambda y: y * torch.empty_like(y).bernoulli_(0.7) / 0.7)(NORM(x)),
    "out of place": lambda x: NORM(x) * torch.bernoulli(torch.full_like(x, 0.7)) / 0.7,
    "by a tensor": lambda x: (lambda y: y * torch.empty_like(y).bernoulli_(torch.full_like(y, 0.7)) / 0.7)(NORM(x)),
}
"""Each keeps a number or makes it zero, and divides what it keeps by the probability to be kept."""


def step(program: Callable[[Any], Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    torch.manual_seed(3)
    result = program(x)
    result.sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("name", DROPPED)
def test_the_draws_of_eager_mode(name: str) -> None:
    x = torch.rand(2, 8, 32) + 1
    compiled = aot_compile(DROPPED[name], fw_compiler=inductor(fallback_random=True))
    for _ in range(2):
        for got, expected in zip(step(compiled, x), step(DROPPED[name], x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dropout of a layer norm", "of a softmax", "by hand", "by a tensor"])
def test_the_draws_of_inductor(name: str) -> None:
    """Where eager keeps a number with these draws, is seen by what is kept: the gradient has the same mask."""
    x = torch.rand(16, 8, 32) + 1
    compiled = aot_compile(lambda x: (x, DROPPED[name](x)), fw_compiler="inductor")
    x.requires_grad_()
    _, result = compiled(x)
    kept = result != 0
    assert result.isfinite().all() and 0.65 < kept.float().mean() < 0.75
    whole = {"of a softmax": x.softmax(-1)}.get(name, NORM(x))
    torch.testing.assert_close(result, torch.where(kept, whole / 0.7, 0.0), rtol=1e-4, atol=1e-5)
    tangent = torch.randn_like(result)
    (got,) = torch.autograd.grad(result, x, tangent)
    (expected,) = torch.autograd.grad(whole, x, torch.where(kept, tangent / 0.7, 0.0))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_a_wrapped_weight() -> None:
    weight = Int8Weight.from_float(torch.randn(32, 32))
    x = torch.rand(4, 32) + 1

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(NORM(x @ weight.t()), 0.3)

    compiled = aot_compile(program, fw_compiler=inductor(fallback_random=True))
    for got, expected in zip(step(compiled, x), step(program, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_a_wrapped_input() -> None:
    x = TwoTensor(torch.rand(4, 32) + 1, torch.rand(4, 32) + 1)
    compiled = aot_compile(lambda x: F.dropout(x / x.sum(-1, keepdim=True), 0.3), fw_compiler="inductor")
    result = compiled(x)
    for part in (result.a, result.b):
        assert part.isfinite().all() and (part == 0).any()


def test_symbolic_sizes() -> None:
    compiled = aot_compile(lambda x: F.dropout(NORM(x), 0.3), fw_compiler="inductor", dynamic=True)
    for rows in (4, 9):
        result, gradient = step(compiled, torch.rand(rows, 32))
        assert result.isfinite().all() and gradient.isfinite().all() and (result == 0).any()
    assert not compiled.recompiles


def test_an_operator_whose_name_is_a_keyword() -> None:
    compiled = aot_compile(lambda x: torch.empty_like(x).random_(1, 5) * x, fw_compiler="inductor")
    got = compiled(torch.ones(8, 32))
    assert set(got.unique().tolist()) == {1.0, 2.0, 3.0, 4.0}


def test_through_torch_compile(fresh_dynamo: None) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Dropout(0.3))
    options = {"fw_compiler": "inductor", "fallback_random": True}
    compiled = torch.compile(model, backend="subclass_aot", options=options)
    x = torch.rand(4, 32)
    for got, expected in zip(step(compiled, x), step(model, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_a_generator_is_left_to_the_operator() -> None:
    decompose = inductor_decompositions()[torch.ops.aten.bernoulli.p]
    assert decompose(torch.ones(2), 0.5, generator=torch.Generator()) is NotImplemented


def test_switches_that_are_not_there() -> None:
    with pytest.raises(SubclassAotError, match="no switch 'fallback_randoms'[^A]*Alike: +fallback_random"):
        inductor(fallback_randoms=True)
    with pytest.raises(SubclassAotError, match="no mode 'fast'(.|\n)*max-autotune"):
        inductor("fast")
