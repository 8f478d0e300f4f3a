"""What serves an operator, told without a tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int4Weight, Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.kit.wrapper.service import place_of, service_of
from tests.kit.wrapper.classes import Rounded, Scaled, fresh

aten: Any = torch.ops.aten


class Silent(WrapperTensor):
    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value


class Inherits(Int8Weight):
    pass


@pytest.mark.parametrize(
    ("cls", "func", "how"),
    [
        (TwoTensor, aten.mm.default, "each inner tensor"),
        (TwoTensor, aten.matmul.default, "the operators that it is made of"),
        (Scaled, aten.mm.default, "to_plain"),
        (Rounded, aten.mul_.Tensor, "to_plain and from_plain"),
        (Rounded, aten.copy_.default, "built in, from_plain"),
        (Scaled, aten.copy_.default, "built in, from its own class only"),
        (Scaled, aten.clone.default, "built in"),
        (Scaled, aten.t.default, "built in, by views="),
        (Silent, aten.t.default, "built in, through the whole"),
        (Scaled, aten.diagonal.default, "built in, through the whole"),
        (Int4Weight, aten.t.default, "built in, through the whole"),
        (Int4Weight, aten.slice.Tensor, "built in, by views="),
        (Rounded, torch.ops.c10d.allreduce_.default, "each inner tensor, or what the wrappers stand for"),
    ],
)
def test_what_serves(cls: Any, func: Any, how: str) -> None:
    assert service_of(cls, func) == (how, "")


@pytest.mark.parametrize(
    ("cls", "func", "how"),
    [
        (fresh(), aten.mm.default, ""),
        (fresh(), aten.t.default, "views= is not declared"),
        (Silent, aten.t_.default, "views= is not declared"),
        (Int4Weight, aten.t_.default, 'views="blocks" cannot follow it'),
        (Scaled, aten.mul_.Tensor, "it writes, and there is no from_plain"),
    ],
)
def test_what_nothing_serves_has_a_stub(cls: Any, func: Any, how: str) -> None:
    service = service_of(cls, func)
    assert service.how == how and f"@{cls.__name__}.implements(torch.ops.{func})" in service.stub


def test_a_rule_is_named_by_its_place() -> None:
    rule: Any = Int8Weight.__wrapper_declaration__.rules[aten.mm.default].function
    for cls in (Int8Weight, Inherits):
        assert service_of(cls, aten.mm.default) == (f"rule, {place_of(rule)}", "")
    assert place_of(rule) == f"int8_weight.py:{rule.__code__.co_firstlineno}"
