"""Wrappers as text."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from subclass_aot.kit.wrapper import WrapperTensor
from tests.kit.wrapper.classes import Labelled, everything


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_repr_and_constructor_on_tensors_without_values(device: str) -> None:
    if device == "fake":
        with FakeTensorMode():
            wrapper = Labelled(torch.zeros(2, 3, dtype=torch.int8), torch.zeros(2, 1))
        expected = "Labelled(float32[2, 3], codes=int8[2, 3], scale=float32[2, 1], label='w')"
    else:
        wrapper = Labelled(torch.zeros(2, 3, dtype=torch.int8, device=device), torch.zeros(2, 1, device=device))
        expected = "Labelled(float32[2, 3] meta, codes=int8[2, 3] meta, scale=float32[2, 1] meta, label='w')"
    assert repr(wrapper) == expected


def test_repr_of_lists_gradients_and_nesting() -> None:
    wrapper = everything().requires_grad_()
    assert repr(wrapper).endswith("table_right=float32[4], bits=8, requires_grad=True)")

    class Pair(WrapperTensor, fallback="each"):
        left: torch.Tensor
        right: torch.Tensor

    inner = Pair(torch.zeros(2), torch.zeros(2))
    nested = Pair(inner, torch.zeros(2)).requires_grad_() * 2
    assert repr(nested) == (
        "Pair(float32[2], left=Pair(float32[2], left=float32[2], right=float32[2]), right=float32[2], "
        "grad_fn=<MulBackward0>)"
    )


def test_stable_hash_depends_on_everything_but_values() -> None:
    base = everything()._stable_hash_for_caching()
    assert everything(first=torch.ones(2, 3))._stable_hash_for_caching() == base
    changed = [
        everything(bits=4),
        everything(first=torch.zeros(3, 2).t()),
        everything(first=torch.zeros(7)[1:].view(2, 3)),
        everything(extra=torch.zeros(1)),
    ]
    assert len({base, *(wrapper._stable_hash_for_caching() for wrapper in changed)}) == 5
