"""How views were made, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.engine.outputs import ViewOfBase, ViewOfInput
from subclass_aot.kit.views import Chain

VIEWS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.view(-1)[1:], lambda x: x.unbind(1), lambda x: x.t().unsqueeze(0), lambda x: (x * 2).split(1),
    lambda x: x.movedim(0, 1), lambda x: x.expand(2, 2, 3), lambda x: x.diagonal(), lambda x: x.unfold(1, 2, 1),
]  # fmt: skip


def chains(fn: Callable[..., Any], x: torch.Tensor, **options: Any) -> list[Any]:
    compiled = sa.aot_compile(fn, **options)
    compiled(x)
    assert compiled._specializations.latest is not None
    outputs = compiled._specializations.latest.signature.outputs
    return [output.replay for output in outputs if isinstance(output, ViewOfInput | ViewOfBase)]


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_views_are_chains_of_operators(number: int, two: bool) -> None:
    x: torch.Tensor = torch.arange(6.0).view(2, 3)
    x = sa.TwoTensor(x, x + 1) if two else x
    if number == 3:  # views of a base that is no input
        x = x.requires_grad_()
    found = chains(VIEWS[number], x)
    assert found and all(type(chain) is Chain for chain in found)
    expected = VIEWS[number](x)
    base = x * 2 if number == 3 else x
    for chain, view in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        made = chain(base)
        assert made.shape == view.shape and made.stride() == view.stride()
        assert made.storage_offset() == view.storage_offset() and made._base is not None


def test_numbers_of_a_chain_are_those_of_the_call() -> None:
    (chain,) = chains(lambda x: x.view(x.shape[0] * 3)[2:], torch.rand(4, 3), dynamic=True)
    assert type(chain) is Chain
    assert chain(torch.rand(5, 3), 15).shape == (13,)
