"""Which rule serves an operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.errors import DefinitionError
from tests.wrapper.classes import fresh

aten = torch.ops.aten


def test_a_rule_gets_the_operators_arguments() -> None:
    cls, seen = fresh(), []

    @cls.implements(aten.add.Tensor, aten.sub.Tensor)
    def rule(*args: Any, **kwargs: Any) -> Any:
        seen.append((args[1:], kwargs))
        return args[0]

    x = cls(torch.zeros(2))
    torch.add(x, 1.5, alpha=2)
    x - 3
    assert seen == [((1.5,), {"alpha": 2}), ((3,), {})]
    assert rule.__name__ == "rule"


def test_an_overload_goes_before_its_packet() -> None:
    cls = fresh()
    cls.implements(aten.sum)(lambda *args: torch.tensor(1.0))
    cls.implements(aten.sum.dim_IntList)(lambda *args: torch.full((1,), 2.0))
    x = cls(torch.zeros(2, 1))
    assert (x.sum().item(), x.sum(0).item()) == (1, 2)


def test_rules_are_found_along_the_mro_and_caches_are_dropped() -> None:
    base = fresh()
    derived = type("Derived", (base,), {})
    x, y = base(torch.zeros(())), derived(torch.zeros(()))
    base.implements(aten.neg.default)(lambda x: torch.tensor(1.0))
    assert (x.neg().item(), y.neg().item()) == (1, 1)
    derived.implements(aten.neg.default)(lambda x: torch.tensor(2.0))
    assert (x.neg().item(), y.neg().item()) == (1, 2)
    base.implements(aten.neg.default)(lambda x: torch.tensor(3.0))
    assert (x.neg().item(), y.neg().item()) == (3, 2)
    base.implements(aten.abs.default)(lambda x: torch.tensor(4.0))
    assert y.abs().item() == 4


def test_what_cannot_have_a_rule() -> None:
    cls = fresh()
    with pytest.raises(DefinitionError, match=r"<built-in method add.* is not an operator"):
        cls.implements(torch.add)(lambda *args: None)
    with pytest.raises(
        DefinitionError, match=r"aten\.linear\.default is composite; a rule for it would not be reached"
    ):
        cls.implements(aten.linear.default)(lambda *args: None)
