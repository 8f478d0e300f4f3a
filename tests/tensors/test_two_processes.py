"""What the ready-made classes do in two processes: sharded, replicated, sent, and trained in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot.tensors import (
    Float8Weight,
    Int4Weight,
    Int8Weight,
    LoraWeight,
    MaskedTensor,
    NF4Weight,
    QuantAwareWeight,
    Sparse24Weight,
    TwoTensor,
)
from subclass_aot.testing import check_subclass


def weight() -> torch.Tensor:
    return torch.randn(8, 64)


def int8() -> Any:
    return Int8Weight.from_float(weight())


def int4() -> Any:
    return Int4Weight.from_float(weight())


def nf4() -> Any:
    return NF4Weight.from_float(weight())


def float8() -> Any:
    return Float8Weight.from_float(weight())


def lora() -> Any:
    return LoraWeight.beside(weight(), rank=2)


def sparse24() -> Any:
    return Sparse24Weight.from_float(weight())


def masked() -> Any:
    return MaskedTensor(torch.randn(8, 6), torch.rand(8, 6) > 0.3)


def two() -> Any:
    return TwoTensor(torch.randn(4, 6), torch.randn(4, 6))


def quant_aware() -> Any:
    return QuantAwareWeight(torch.randn(4, 6))


@pytest.mark.parametrize(
    ("make", "not_offered"),
    [
        pytest.param(float8, set(), id="float8"),
        *(
            pytest.param(make, names, id=make.__name__, marks=pytest.mark.long)
            for make, names in (
                (int8, set()),
                (int4, set()),
                (nf4, set()),
                (quant_aware, set()),
                (lora, {"FSDP shards"}),  # rows of low-rank factors have no class of their own
                (sparse24, {"FSDP shards", "FSDP2: a step"}),
                (masked, {"FSDP shards"}),
                (two, {"FSDP2: a step"}),  # whose gradients are wrappers
            )
        ),
    ],
)
def test_in_two_processes(make: Callable[[], Any], not_offered: set[str]) -> None:
    report = check_subclass(make, only=[43])
    report.raise_if_broken()
    assert {finding.clause.name for finding in report.not_offered} == not_offered
