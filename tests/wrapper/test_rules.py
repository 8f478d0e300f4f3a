"""Which rule serves an operator, and what is said when none does or when it returns something else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot.errors import DefinitionError, OperatorRuleError, RuleResultError
from subclass_aot.wrapper import WrapperTensor

aten = torch.ops.aten


def fresh(**keywords: Any) -> type[Any]:
    class Fresh(WrapperTensor, **keywords):
        payload: torch.Tensor

    return Fresh


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
    cls.implements(aten.sum)(lambda *args: torch.tensor(1))
    cls.implements(aten.sum.dim_IntList)(lambda *args: torch.tensor(2))
    x = cls(torch.zeros(2, 2))
    assert (x.sum().item(), x.sum(0).item()) == (1, 2)


def test_rules_are_found_along_the_mro_and_caches_are_dropped() -> None:
    base = fresh()
    derived = type("Derived", (base,), {})
    x, y = base(torch.zeros(2)), derived(torch.zeros(2))
    base.implements(aten.neg.default)(lambda x: torch.tensor(1))
    assert (x.neg().item(), y.neg().item()) == (1, 1)
    derived.implements(aten.neg.default)(lambda x: torch.tensor(2))
    assert (x.neg().item(), y.neg().item()) == (1, 2)
    base.implements(aten.neg.default)(lambda x: torch.tensor(3))
    assert (x.neg().item(), y.neg().item()) == (3, 2)
    base.implements(aten.abs.default)(lambda x: torch.tensor(4))
    assert y.abs().item() == 4


def test_not_implemented_passes_on() -> None:
    base = fresh(fallback="each")
    derived = type("Derived", (base,), {})
    base.implements(aten.neg.default)(lambda x: torch.tensor(1) if x.dim() == 1 else NotImplemented)
    derived.implements(aten.neg.default)(lambda x: torch.tensor(2) if x.dim() == 2 else NotImplemented)
    assert derived(torch.zeros(1)).neg().item() == 1
    assert derived(torch.zeros(1, 1)).neg().item() == 2
    assert type(derived(torch.zeros(1, 1, 1)).neg()) is derived


def test_a_rule_in_an_each_class_goes_before_the_recipe() -> None:
    cls = fresh(fallback="each")
    cls.implements(aten.mm.default)(lambda a, b: torch.tensor(5))
    x = cls(torch.zeros(2, 2))
    assert (x @ x).item() == 5
    with torch.inference_mode():
        assert torch.nn.functional.linear(x, x).item() == 5  # taken apart, so that the same rule is met


def test_error_without_a_rule() -> None:
    x = fresh()(torch.zeros(2))
    with pytest.raises(OperatorRuleError) as error:
        torch.add(x, torch.ones(2), alpha=2)  # the user's line
    text = str(error.value)
    assert text.startswith("No rule for aten.add.Tensor on Fresh.\n")
    assert "schema:      aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" in text
    assert "called with: (Fresh, Tensor, alpha=2)" in text
    assert "test_rules.py" in text and "torch.add(x, torch.ones(2), alpha=2)  # the user's line" in text
    assert "no recipe (fallback=...) and no to_plain method" in text
    assert (
        "    @Fresh.implements(torch.ops.aten.add.Tensor)\n    def _(self, other, *, alpha=1):\n        ...\n" in text
    )
    with pytest.raises(NotImplementedError):
        x.cumsum(0)


@pytest.mark.parametrize(
    ("op", "rule", "call", "parts"),
    [
        (aten.neg.default, lambda x: 3, lambda x: x.neg(), ["expected: a tensor", "got:      3"]),
        (aten.neg.default, lambda x: None, lambda x: x.neg(), ["expected: a tensor", "got:      None"]),
        (aten.add_.Tensor, lambda x, y: x + 1, lambda x: x.add_(1), ["expected: `self` itself", "got:      Fresh"]),
        (
            aten.view.default,
            lambda x, s: x.payload,
            lambda x: x.view(4),
            ["a view of the Fresh `self`", "got:      Tensor"],
        ),
        (aten.unbind.int, lambda x, d=0: x, lambda x: x.unbind(), ["a list, each a view of the Fresh"]),
        (aten.unbind.int, lambda x, d=0: [x.payload], lambda x: x.unbind(), ["got:      a list of 1: (Tensor)"]),
        (aten.max.dim, lambda x, d: (x, x, x), lambda x: x.max(0), ["expected: a tuple of 2", "tuple of 3"]),
        (aten._foreach_neg.default, lambda xs: 1, lambda x: torch._foreach_neg([x]), ["expected: a list of tensors"]),
        (aten._foreach_neg_.default, lambda xs: xs, lambda x: torch._foreach_neg_([x]), ["expected: None"]),
        (aten.add.out, lambda x, y, out: x, lambda x: torch.add(x, x, out=x.t().t()), ["expected: `out` itself"]),
    ],
)
def test_wrong_results(op: Any, rule: Any, call: Any, parts: list[str]) -> None:
    cls = fresh(fallback="each")
    cls.implements(op)(rule)
    with pytest.raises(RuleResultError) as error:
        call(cls(torch.zeros(2, 2)))
    for part in [f"The rule of Fresh for {op} returned", "rule:     ", "test_rules.py", "schema:   aten::", *parts]:
        assert part in str(error.value), str(error.value)


def test_what_cannot_have_a_rule() -> None:
    cls = fresh()
    with pytest.raises(DefinitionError, match=r"<built-in method add.* is not an operator"):
        cls.implements(torch.add)(lambda *args: None)
    with pytest.raises(
        DefinitionError, match=r"aten\.linear\.default is composite; a rule for it would not be reached"
    ):
        cls.implements(aten.linear.default)(lambda *args: None)


def test_higher_order_operators() -> None:
    cls = fresh()
    op = torch.ops.higher_order.cond
    with pytest.raises(OperatorRuleError, match=r"@Fresh\.implements\(torch\.ops\.higher_order\.cond\)"):
        cls.__torch_dispatch__(op, (cls,), (True, torch.sin, torch.cos, (cls(torch.zeros(2)),)))
    cls.implements(op)(lambda *args: 7)
    assert cls.__torch_dispatch__(op, (cls,), (True, torch.sin, torch.cos, (cls(torch.zeros(2)),))) == 7


class Stranger(WrapperTensor, fallback="each"):
    content: torch.Tensor


def test_unknown_wrapper_classes_are_asked_themselves() -> None:
    cls = fresh(fallback="each")
    x = cls(torch.zeros(2))
    for other in (Stranger(torch.ones(2)), ForeignTensor(torch.ones(2), torch.ones(2))):
        assert cls.__torch_dispatch__(aten.add.Tensor, (cls, type(other)), (x, other)) is NotImplemented
    with pytest.raises(TypeError):
        x + Stranger(torch.ones(2))


def test_accepted_and_leaf_like_classes_are_known() -> None:
    class Knows(WrapperTensor, fallback="each"):
        accepts = (Stranger,)
        payload: torch.Tensor

    x = Knows(torch.zeros(2))
    result = x + Stranger(torch.ones(2))
    assert type(result) is Knows and type(result.payload) is Stranger
    assert type(Stranger(torch.ones(2)) + x) is Knows
    assert type(x + torch.nn.Parameter(torch.ones(2))) is Knows
