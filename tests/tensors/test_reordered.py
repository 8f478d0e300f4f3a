"""Weights whose columns lie in another order, against the dense tensors that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot.tensors import Int4Weight, Int8Weight
from subclass_aot.tensors.reordered import Reordered
from tests.tensors.checks import EACH_COMPILER, check_linear, check_saving, layer, verdicts


def reordered(seed: int = 0, cls: Any = Int4Weight) -> Reordered:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(8, 64, generator=generator)
    return Reordered(cls.from_float(dense), torch.randperm(64, generator=generator))


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: reordered()) == {(24, "new_zeros")}


def test_what_it_stands_for() -> None:
    weight = reordered()
    dense, base = weight.to_plain(), weight.base.to_plain()  # type: ignore[attr-defined]
    for j, column in enumerate(weight.order.tolist()):
        assert dense[:, column].equal(base[:, j])
    assert Reordered(base, weight.order).to_plain().equal(dense)


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.parametrize("cls", [Int4Weight, Int8Weight])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(cls: Any, compiler: str) -> None:
    check_linear(reordered(cls=cls), compiler)


def test_saving(tmp_path: Path) -> None:
    check_saving(reordered(), reordered(1), tmp_path)


def test_a_dense_checkpoint_is_rounded_in_its_order() -> None:
    target, dense = layer(reordered()), torch.randn(8, 64)
    target.load_state_dict({"weight": dense, "bias": torch.zeros(8)})
    found: Any = target.weight.data
    assert type(found) is Reordered and found.order.equal(reordered().order)
    assert found.base.to_plain().equal(Int4Weight.from_float(dense[:, found.order]).to_plain())


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"Reordered: base\[M, N\] and order\[N\]|base\[M, N\] and order\[N\]"):
        Reordered(torch.ones(2, 3), torch.arange(2))
