"""Variants of operators that write, and the operators that they stand for."""

from __future__ import annotations

import torch

import subclass_aot as sa
from subclass_aot.base.operators import ORIGINALS

aten = torch.ops.aten


def test_a_variant_leads_to_its_operator() -> None:
    options = {"weight_decay": 0.1, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": False, "maximize": False}

    def step(w: torch.Tensor, g: torch.Tensor, s: torch.Tensor) -> None:
        torch._fused_sgd_([w], [g], [s], is_first_step=False, **options)  # type: ignore[attr-defined]

    sa.aot_compile(step)(torch.ones(2), torch.ones(2), torch.ones(2))
    found = [original for original in ORIGINALS.values() if original.func is aten._fused_sgd_.default]
    assert [name for _, name in found[0].written] == ["self", "grads", "momentum_buffer_list"]
