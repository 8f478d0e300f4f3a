"""The rules that every wrapper class has."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.errors import OperatorRuleError
from subclass_aot.wrapper import Outer, WrapperTensor
from tests.wrapper.classes import Rounded, Scaled, scaled


def test_copy_field_by_field_needs_fields_that_fit() -> None:
    x, y = scaled(), scaled()
    y.codes.zero_()
    x.copy_(y)
    assert not x.codes.any()
    with pytest.raises(OperatorRuleError, match="do not fit into"):
        x.copy_(scaled(scale=(1, 4)))


def test_moving_and_converting() -> None:
    x = scaled()
    half = x.to(torch.bfloat16)
    assert (half.dtype, half.codes.dtype, half.scale.dtype) == (torch.bfloat16, torch.int64, torch.bfloat16)
    assert x.to("meta").table.device.type == "meta" and x.to("meta").device.type == "meta"
    assert type(x.clone()) is Scaled and x.clone().codes is not x.codes
    assert x.to(torch.int32).dtype == torch.int32 and type(x.to(torch.int32)) is torch.Tensor

    class Fixed(WrapperTensor):
        codes: torch.Tensor

        def outer(self) -> Outer:
            return Outer.like(self.codes, dtype=torch.float32)

    with pytest.raises(OperatorRuleError, match=r"no field has the outer dtype torch\.float32"):
        Fixed(torch.zeros(2, dtype=torch.int8)).to(torch.float64)
    with pytest.raises(OperatorRuleError, match="needs a to_plain method"):
        Fixed(torch.zeros(2, dtype=torch.int8)).to(torch.int64)


def test_making_room() -> None:
    x = Rounded(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1))
    assert type(torch.zeros_like(x)) is Rounded and not torch.zeros_like(x).to_plain().any()
    assert type(torch.empty_like(x)) is Rounded and torch.empty_like(x).shape == (2, 3)
    new = x.new_zeros(5, 7)
    assert type(new) is Rounded and (new.codes.shape, new.step.shape) == ((5, 7), (5, 1))
    assert x.new_empty((2, 3), dtype=torch.float64).dtype == torch.float64
    assert type(x.new_empty_strided((2, 3), (3, 1))) is Rounded
    with pytest.raises(OperatorRuleError, match="it cannot tell"):
        x.new_zeros(5)
    with pytest.raises(OperatorRuleError, match="strides"):
        x.new_empty_strided((2, 3), (1, 2))


def test_without_recipe_only_views_that_change_nothing() -> None:
    class Bare(WrapperTensor):
        payload: torch.Tensor

    x = Bare(torch.zeros(3, 4))
    assert type(x.view(3, 4)) is Bare and type(x.expand(3, 4)) is Bare
    with pytest.raises(OperatorRuleError, match='Bare declares no views="broadcast"'):
        x.view(12)
