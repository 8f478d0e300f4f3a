"""Gradients that come expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot.engine.runtime import tangent_coercion

TAKEN: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "an activation": (F.silu, (3, 4)),
    "a linear layer": (nn.Linear(4, 5), (3, 4)),
    "layers": (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), (3, 4)),
    "a product": (lambda x: x * x.detach(), (3, 4)),
    "a product of batches": (lambda x: torch.bmm(x, x), (2, 3, 3)),
}
COPIED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "itself": (lambda x: x + 1, (3, 4)),
    "a view": (lambda x: x.view(4, 3), (3, 4)),
    "a view of rows": (lambda x: F.linear(x, torch.ones(5, 4)), (2, 3, 4)),
    "another layout": (lambda x: x.t() * torch.arange(12.0).view(4, 3), (3, 4)),
    "a broadcast": (lambda x: x * torch.arange(4.0), (3, 4)),
    "a normalization": (nn.LayerNorm(4), (3, 4)),
    "a convolution": (nn.Conv2d(2, 3, 2), (1, 2, 4, 4)),
    "itself beside others": (lambda x: x + F.silu(x), (3, 4)),
    "softmax": (lambda x: x.softmax(1), (3, 4)),
    "an expanded product": (lambda x: x.expand(3, 4) * torch.arange(4.0), (1, 4)),
}


ENDS: list[Callable[[Any], Any]] = [
    torch.sum, torch.mean, lambda y: y[0].sum(), lambda y: (y * y.detach()).sum(), lambda y: y.sum() * 2,
]  # fmt: skip


def compared(fn: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Compares the gradients of an input and of parameters with those of eager mode, to the last bit."""
    compiled = sa.aot_compile(fn)
    parameters = list(fn.parameters()) if isinstance(fn, nn.Module) else []
    for end in ENDS:
        found = []
        for each in (compiled, fn):
            x = torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape).requires_grad_()
            found.append(torch.autograd.grad(end(each(x)), [x, *parameters]))
        for ours, theirs in zip(*found, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", TAKEN)
def test_as_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(leaf: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
        assert any(leaf.stride()), "an expanded gradient was copied"
        return leaf.new_empty_strided(leaf.shape, stride).copy_(leaf)

    monkeypatch.setattr(tangent_coercion, "restrided", refuse)
    compared(*TAKEN[name])


@pytest.mark.parametrize("name", COPIED)
def test_copied(name: str) -> None:
    compared(*COPIED[name])


def test_wrappers() -> None:
    compiled = sa.aot_compile(lambda x: F.silu(x))
    for end in (torch.sum, torch.mean):
        found = []
        for fn in (compiled, F.silu):
            x = sa.TwoTensor(torch.ones(3, 4), torch.arange(12.0).view(3, 4)).requires_grad_()
            end(fn(x)).backward()
            found.append(x.grad)
        assert torch.equal(found[0].a, found[1].a)
        assert torch.equal(found[0].b, found[1].b)


def test_a_compiler_gets_the_strides_that_it_was_told() -> None:
    seen: list[tuple[int, ...]] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.extend(x.stride() for x in args)
            return graph(*args)

        return run

    compiled = sa.aot_compile(F.silu, fw_compiler="eager", bw_compiler=compiler)
    compiled(torch.ones(3, 4, requires_grad=True)).sum().backward()
    assert (0, 0) not in seen


def test_other_strides_are_copied_as_before() -> None:
    compiled = sa.aot_compile(F.silu)
    x = torch.ones(3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(x), x, torch.ones(4, 3).t())
    assert gradient.stride() == (4, 1)
