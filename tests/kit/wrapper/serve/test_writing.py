"""Operators that write and have no rule are served by the rule of the operator that returns what they write."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import ops
from subclass_aot.errors import OperatorRuleError, RuleResultError
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.testing import check_compiled
from tests.kit.wrapper.classes import Rounded, fresh, rounded

aten: Any = torch.ops.aten


def computing(**keywords: Any) -> Any:
    cls = fresh(**keywords)

    @cls.implements(ops.pointwise)
    def rule(op: Any, *args: Any, **kwargs: Any) -> Any:
        return cls(op(*[a.payload if isinstance(a, cls) else a for a in args], **kwargs))

    return cls


class Stepped(WrapperTensor):
    payload: torch.Tensor


@Stepped.implements(ops.pointwise)
def _(op: Any, *args: Any, **kwargs: Any) -> Stepped:
    return Stepped(op(*[a.payload if isinstance(a, Stepped) else a for a in args], **kwargs))


CALLS: dict[str, Any] = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "mul_": lambda x, y: x.mul_(3),
    "lerp_": lambda x, y: x.lerp_(y, 0.3),
    "addcdiv_": lambda x, y: x.addcdiv_(y, x, value=0.5),
    "clamp_": lambda x, y: x.clamp_(min=0.5),
    "comparison": lambda x, y: x.gt_(y),
    "broadcast": lambda x, y: x.mul_(y[:1]) if type(y) is torch.Tensor else x.mul_(y.payload[:1]),
    "out": lambda x, y: torch.maximum(x, y, out=x),
    "out of another": lambda x, y: torch.mul(x, 2, out=y),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("fallback", ["error", "each"])
def test_what_is_written_is_what_the_operator_gives(name: str, fallback: str) -> None:
    cls, one, other = computing(fallback=fallback), torch.rand(3), torch.rand(3)
    x, y = cls(one.clone()), cls(other.clone())
    payloads, version = (x.payload, y.payload), x._version
    result = CALLS[name](x, y)
    expected = CALLS[name](one, other)
    assert result is (y if name == "out of another" else x)
    assert (x.payload, y.payload) == payloads or all(
        a is b for a, b in zip((x.payload, y.payload), payloads, strict=True)
    )
    torch.testing.assert_close(result.payload, expected)
    torch.testing.assert_close((x.payload, y.payload), (one, other))
    assert (x._version > version) == (name != "out of another")


@pytest.mark.parametrize("name", CALLS)
def test_compiled_is_eager(name: str) -> None:
    check_compiled(CALLS[name], [Stepped(torch.rand(3)), Stepped(torch.rand(3))])


def test_a_rule_of_its_own_goes_first() -> None:
    cls, seen = computing(), []

    @cls.implements(ops.in_place)
    def rule(op: Any, x: Any, *args: Any) -> Any:
        seen.append(op)
        op(x.payload, *args)
        return x

    x = cls(torch.ones(2))
    x.mul_(2).index_fill_(0, torch.tensor([0]), 7)
    assert seen == [aten.mul_.Tensor, aten.index_fill_.int_Scalar] and x.payload.tolist() == [7, 2]
    assert type(x).mul_ is torch.Tensor.mul_
    cls.implements(aten.mul_.Tensor)(lambda x, y: x)
    assert x.mul_(2) is x and x.payload.tolist() == [7, 2] and len(seen) == 2


def test_an_operator_without_any_rule_is_served_as_before() -> None:
    each, error = computing(fallback="each"), computing()
    x = each(torch.ones(2))
    assert x.zero_() is x and x.payload.tolist() == [0, 0]
    with pytest.raises(OperatorRuleError, match=r"No rule for aten\.zero_\.default"):
        error(torch.ones(2)).zero_()


def test_a_rule_that_declines_passes_on_to_what_serves_the_writing_operator() -> None:
    cls = fresh(fallback="each")
    cls.implements(aten.mul.Tensor)(lambda *args: NotImplemented)
    x = cls(torch.ones(2))
    assert x.mul_(3) is x and x.payload.tolist() == [3, 3]
    error = fresh()
    error.implements(aten.mul.Tensor)(lambda *args: NotImplemented)
    with pytest.raises(
        OperatorRuleError, match=r"No rule for aten\.mul_\.Tensor(.*\n)*.*test_writing\.py:\d+\) declined"
    ):
        error(torch.ones(2)).mul_(3)


def test_a_dense_result_is_taken_in_by_from_plain() -> None:
    class Halves(Rounded):
        pass

    Halves.implements(aten.mul.Tensor)(lambda x, y: x.to_plain() * y + 1)  # another meaning, to see that it is asked
    x = Halves(rounded().codes, rounded().step)
    with pytest.raises(OperatorRuleError, match="`copy_` cannot write what that returns into `self`") as caught:
        Dense(torch.ones(2)).mul_(2)
    assert "from_plain" in str(caught.value.__cause__)
    plain = x.to_plain().clone()
    assert x.mul_(2) is x
    torch.testing.assert_close(x.to_plain(), plain * 2 + 1)


class Dense(WrapperTensor):
    payload: torch.Tensor


Dense.implements(aten.mul.Tensor)(lambda x, y: x.payload * y)


def test_what_does_not_fit_is_refused() -> None:
    cls = computing()
    with pytest.raises(OperatorRuleError, match=r"aten\.add\.Tensor gives \[2, 3\] of torch\.float32; `self` is \[3\]"):
        cls(torch.ones(3)).add_(torch.ones(2, 3))
    with pytest.raises(OperatorRuleError, match=r"gives \[2\] of torch\.float32; `self` is \[2\] of torch\.int64"):
        cls(torch.ones(2, dtype=torch.int64)).div_(2)
    with pytest.raises(OperatorRuleError, match=r"gives \[2\] of torch\.float32; `out` is \[3\]"):
        torch.mul(cls(torch.ones(2)), 2, out=cls(torch.ones(3)))
    cls.implements(aten.neg.default)(lambda x: x.payload[:1])
    with pytest.raises(RuleResultError, match=r"for aten\.neg\.default"):
        cls(torch.ones(2)).neg_()


def test_a_write_through_a_view_reaches_the_whole() -> None:
    cls = computing(views="broadcast")
    x = cls(torch.ones(2, 2))
    x[0].mul_(3)
    assert x.payload.tolist() == [[3, 3], [1, 1]]


def test_dense_written_with_wrappers() -> None:
    cls = computing()
    cls.to_plain = lambda self: self.payload
    dense = torch.ones(2)
    assert dense.add_(cls(torch.ones(2))) is dense and dense.tolist() == [2, 2]
