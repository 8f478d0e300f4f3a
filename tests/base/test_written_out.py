"""Operators of the library stand beside what they are made of."""

from __future__ import annotations

import torch

import subclass_aot as sa
from subclass_aot.base.written_out import WRITTEN_OUT


def test_what_an_operator_is_made_of_computes_the_same() -> None:
    weight = sa.tensors.Int4Weight.from_float(torch.randn(64, 128))
    assert sa.tensors.Int4Weight.__name__ and WRITTEN_OUT
    for operator, function in WRITTEN_OUT.items():
        assert callable(function) and operator.namespace == "subclass_aot"
    assert torch.equal(weight.to_plain(), weight.detach().to_plain())
