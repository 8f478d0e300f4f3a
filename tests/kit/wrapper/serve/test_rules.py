"""Which rule serves an operator."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from subclass_aot import ops
from subclass_aot.errors import DefinitionError, OperatorRuleError, RuleResultError
from tests.kit.wrapper.classes import fresh

aten = torch.ops.aten


def test_a_rule_gets_the_operators_arguments() -> None:
    cls, seen = fresh(), []

    @cls.implements(aten.add.Tensor, aten.sub.Tensor)
    def rule(*args: Any, **kwargs: Any) -> Any:
        seen.append((args[1:], kwargs))
        return args[0].clone()

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


def test_the_rule_of_a_packet_serves_out_by_copying() -> None:
    cls = fresh(fallback="error")

    @cls.implements(aten.mul)
    def _(x: Any, y: Any) -> Any:
        return cls(x.payload * y)

    x, out = cls(torch.full((2,), 3.0)), cls(torch.zeros(2))
    assert torch.mul(x, 2.0, out=out) is out and out.payload.tolist() == [6, 6]
    cls.implements(aten.mul.out)(lambda x, y, out: out)
    assert torch.mul(x, 5.0, out=out) is out and out.payload.tolist() == [6, 6]


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


def says(cls: Any, name: str) -> Any:
    """A rule for a set, which remembers what it was asked for in `cls.asked`."""

    def rule(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        cls.asked.append((name, op))
        return op(x.payload, *args, **kwargs)

    return rule


def asked(cls: Any, call: Any) -> list[str]:
    """Which rules were asked by a call, in order."""
    cls.asked.clear()
    call(cls(torch.ones(2, 3)))
    return [name for name, _ in cls.asked]


def with_rules(*groups: Any, base: Any = None) -> Any:
    cls = fresh() if base is None else type("Derived", (base,), {})
    cls.asked = [] if base is None else base.asked
    for group in groups:
        cls.implements(group)(says(cls, repr(group)))
    return cls


def test_a_rule_for_a_set_gets_the_operator_first() -> None:
    cls, seen = fresh(), []

    @cls.implements(ops.pointwise)
    def rule(op: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((op, args[1:], kwargs))
        return op(args[0].payload, *args[1:], **kwargs)

    x = cls(torch.ones(2))
    assert torch.add(x, 1.5, alpha=2).tolist() == [4.0, 4.0] and (-x).tolist() == [-1.0, -1.0]
    assert seen == [(aten.add.Tensor, (1.5,), {"alpha": 2}), (aten.neg.default, (), {})]
    with pytest.raises(OperatorRuleError, match=r"No rule for aten\.sum\.default"):
        x.sum()
    assert x.clone().payload is not x.payload


def test_with_a_set_among_them_a_rule_gets_the_operator_for_all() -> None:
    cls = fresh()
    cls.implements(ops.reductions, aten.cumsum.default)(lambda op, x, *args: op(x.payload, *args))
    x = cls(torch.ones(2))
    assert x.sum().item() == 2 and x.cumsum(0).tolist() == [1, 2]


PART, BOTH = ops.pointwise - {aten.mul}, ops.pointwise | ops.reductions


@pytest.mark.parametrize("order", list(itertools.permutations([PART, ops.pointwise, BOTH])), ids=str)
def test_the_nearer_rule_goes_first_in_one_class(order: Any) -> None:
    cls = with_rules(*order)
    cls.implements(aten.add)(lambda x, y: (cls.asked.append(("packet", 0)), x.payload)[1])
    cls.implements(aten.add.Tensor)(lambda x, y: (cls.asked.append(("overload", 0)), x.payload)[1])
    assert asked(cls, lambda x: x + 1) == ["overload"]
    assert asked(cls, lambda x: aten.add.Scalar(x, 1)) == ["packet"]
    assert asked(cls, torch.neg) == [repr(PART)]
    assert asked(cls, lambda x: x * 2) == ["ops.pointwise"]
    assert asked(cls, lambda x: x.sum()) == [repr(BOTH)]


def test_a_rule_that_declines_passes_on_to_the_wider_set_and_then_to_the_base() -> None:
    base = with_rules()
    base.implements(aten.neg.default)(lambda x: (base.asked.append(("base", 0)), x.payload)[1])
    derived = with_rules(ops.pointwise | ops.views, base=base)

    @derived.implements(ops.pointwise)
    def rule(op: Any, *args: Any) -> Any:
        derived.asked.append(("declines", op))
        return NotImplemented

    assert asked(derived, torch.neg) == ["declines", "ops.pointwise | ops.views"]
    derived.implements(ops.pointwise | ops.views)(rule)
    assert asked(derived, torch.neg) == ["declines", "declines", "base"]
    with pytest.raises(OperatorRuleError, match=r"The rule \S+rule \(.*test_rules\.py:\d+\) declined") as caught:
        derived(torch.ones(2)).abs()
    assert "one rule for the set" not in str(caught.value)


def test_the_nearest_class_goes_first_with_a_set_too() -> None:
    base = with_rules(ops.pointwise)
    base.implements(aten.neg.default)(lambda x: (base.asked.append(("exact", 0)), x.payload)[1])
    inherits, overrides = with_rules(base=base), with_rules(ops.pointwise - {aten.abs}, base=base)
    assert asked(base, torch.neg) == asked(inherits, torch.neg) == ["exact"]
    assert asked(overrides, torch.neg) == ["ops.pointwise - {aten.abs.default}"]
    assert asked(overrides, torch.abs) == ["ops.pointwise"]


def test_sets_that_overlap_are_refused() -> None:
    cls = with_rules(ops.pointwise | ops.views)
    with pytest.raises(DefinitionError, match=r"(?s)neither is a part.*ops\.pointwise \| ops\.views.*ops\.reductions"):
        cls.implements(ops.pointwise | ops.reductions)(lambda *args: None)
    with pytest.raises(DefinitionError, match="neither is a part"):
        fresh().implements(ops.pointwise | ops.views, ops.pointwise | ops.reductions)(lambda *args: None)
    assert not fresh().__wrapper_declaration__.rules
    with_rules(ops.pointwise | ops.reductions, base=cls)  # another class, so it is clear which is nearer
    cls.implements(ops.reductions, ops.factories | ops.in_place)(lambda *args: None)


def test_a_later_rule_for_the_same_set_takes_the_place_of_the_former() -> None:
    cls = with_rules(ops.pointwise)
    assert asked(cls, torch.neg) == ["ops.pointwise"]
    cls.implements(ops.pointwise - {aten.where} | ops.pointwise)(says(cls, "later"))
    assert asked(cls, torch.neg) == ["later"]


def test_what_a_rule_for_a_set_returns_is_checked() -> None:
    cls = fresh()
    cls.implements(ops.pointwise)(lambda op, x, *args: x.payload[:1])
    with pytest.raises(
        RuleResultError, match=r"for aten\.neg\.default returned.*\n.*test_rules\.py:\d+(.*\n)*.*size \[2\]"
    ):
        cls(torch.ones(2)).neg()
    cls.implements(ops.views)(lambda op, x, *args: op(x.payload, *args))
    with pytest.raises(RuleResultError, match="a view of the Fresh `self`"):
        cls(torch.ones(2, 2)).t()
    cls.implements(ops.in_place)(lambda op, x, *args: x.payload)
    with pytest.raises(RuleResultError, match="`self` itself"):
        cls(torch.ones(2)).add_(1)


def test_a_rule_is_looked_up_once_for_an_operator() -> None:
    cls = with_rules(ops.pointwise)
    x = cls(torch.ones(2))
    x.neg()
    handler = cls._handlers[aten.neg.default]
    x.neg()
    assert cls._handlers[aten.neg.default] is handler


def test_a_custom_operator_that_is_registered_later_is_served() -> None:
    cls = fresh()
    cls.implements(ops.pointwise)(lambda op, x: cls(op(x.payload)))
    library = torch.library.Library("of_rules", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    assert torch.ops.of_rules.twice(cls(torch.ones(2))).payload.tolist() == [2, 2]


def test_the_error_for_an_operator_without_rule_names_its_set() -> None:
    with pytest.raises(OperatorRuleError, match=r"or: +one rule for the set sa\.ops\.reductions serves it"):
        fresh()(torch.ones(2)).sum()
    with pytest.raises(OperatorRuleError, match=r"why: .*\nWrite one:"):
        fresh()(torch.ones(2, 2)).mm(torch.ones(2, 2))
