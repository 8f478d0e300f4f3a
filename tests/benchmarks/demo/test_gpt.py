"""The small GPT: what is frozen, what is trained, and that no token sees those after it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from benchmarks.demo.gpt import GPT, adapted
from subclass_aot import Int8Weight

TEXT = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))


def small() -> GPT:
    torch.manual_seed(0)
    return GPT(vocabulary=9, context=6, layers=2, width=16, heads=2)


@pytest.mark.parametrize("quantized", [True, False])
def test_factors_learn_beside_frozen_weights(quantized: bool) -> None:
    model = adapted(small(), rank=2, quantized=quantized)
    model(TEXT).square().mean().backward()
    frozen = Counter(type(p) is Int8Weight for p in model.parameters() if not p.requires_grad)
    assert frozen == {quantized: 8}
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


def test_factors_change_nothing_at_first() -> None:
    torch.testing.assert_close(adapted(small(), quantized=False)(TEXT), small()(TEXT))
    torch.testing.assert_close(adapted(small())(TEXT), small()(TEXT), rtol=0.1, atol=0.05)


def test_no_token_sees_those_after_it() -> None:
    model = small()
    other = TEXT.clone()
    other[:, 4:] = 8 - other[:, 4:]
    torch.testing.assert_close(model(TEXT)[:, :4], model(other)[:, :4])
    assert not torch.equal(model(TEXT)[:, 4:], model(other)[:, 4:])
