"""Calls that are drawn find rules that forget an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Sparse24Weight, TwoTensor, WrapperTensor
from subclass_aot.testing.contract.drawn_calls import CLAUSES, drawn_calls, drawn_operators
from subclass_aot.testing.contract.trial import BrokenClause, Trial
from tests.testing.contract.classes import Scaled, aten, scaled
from tests.testing.contract.wrong_declared import SecondIsFirst

EXAMPLE = torch.randn(4, 6)


def plain(value: Any) -> Any:
    return value.to_plain() if isinstance(value, WrapperTensor) else value


def flipped(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) if x.dim() > 2 else x


MISTAKES: dict[str, tuple[Any, Callable[..., Any], str]] = {
    "the wrapper is the second": (
        aten.div.Tensor,
        lambda a, b: plain(a) / plain(b) if isinstance(a, Scaled) else plain(b) / plain(a),
        "(dense, x)",
    ),
    "a keyword": (aten.div.Tensor_mode, lambda a, b, rounding_mode: plain(a) / plain(b), "rounding_mode='floor'"),
    "a factor": (aten.add.Tensor, lambda a, b, alpha=1: plain(a) + plain(b), "alpha=2"),
    "a factor of products": (aten.addmm.default, lambda c, a, b, beta=1, alpha=1: plain(c) + plain(a) @ plain(b), "=2"),
    "one of two bounds": (aten.clamp.default, lambda x, low=None, high=None: plain(x).clamp(low or -99), "None, 0.5"),
    "a condition": (aten.where.self, lambda c, a, b: torch.where(plain(c), plain(b), plain(a)), "dense > 0.8"),
    "a comparison": (aten.lt.Tensor, lambda a, b: plain(a) <= plain(b), "(x, x)"),
    "a dim": (aten.cumsum.default, lambda a, dim, dtype=None: plain(a).cumsum(0, dtype=dtype), "-1"),
    "a dim of softmax": (aten._softmax.default, lambda a, dim, half: plain(a).softmax(-1), "0"),
    "an order": (
        aten.linalg_vector_norm.default,
        lambda a, ord=2, dim=None, keep=False, dtype=None: plain(a).norm(2, dim, keep),
        "0.5",
    ),
    "rows": (aten.embedding.default, lambda w, index, *more: plain(w)[index] * 2, "zeros(2)"),
    "the second of a list": (aten._foreach_mul.Scalar, lambda a, s: [plain(x) * (2 - i) for i, x in enumerate(a)], "1"),
    "a number, no tensor": (
        aten.div.Tensor,
        lambda a, b: plain(a) / plain(b) if isinstance(b, torch.Tensor) else b / plain(a),
        "(x, 2.5)",
    ),
    "one that is larger": (aten.mul.Tensor, lambda a, b: flipped(plain(a) * plain(b)), "dense of one dim more)"),
    "a weight": (aten.lerp.Scalar, lambda a, b, weight: plain(a).lerp(plain(b), 0.5), "2"),
}


def found(make: Callable[[], Any], func: Any) -> list[str]:
    """What is wrong in the calls of one operator."""
    trial, wrong = Trial(make), []
    for call in drawn_calls(func, trial.values()[0]):
        try:
            trial.commutes(call.text, call.program)
        except BrokenClause as error:
            wrong.append(str(error))
    return wrong


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    func, rule, says = MISTAKES[mistake]
    assert found(scaled(Scaled), func) == []

    class Wrong(Scaled):
        pass

    Wrong.implements(func)(rule)
    assert any(says in why for why in found(scaled(Wrong), func))


def test_what_is_written_is_what_the_class_can_hold() -> None:
    """Two of four values are kept, so the sine of a weight in place is the sine less those that are pruned."""

    def sparse(cls: type[Sparse24Weight] = Sparse24Weight) -> Sparse24Weight:
        return cls.from_float(torch.randn(8, 64, generator=torch.Generator().manual_seed(0)))

    class Unwritten(Sparse24Weight):
        pass

    Unwritten.implements(aten.cos_.default)(lambda x: x)
    assert found(sparse, aten.cos_.default) == []
    assert any("aten.cos_.default(x)" in why for why in found(lambda: sparse(Unwritten), aten.cos_.default))


class NegativeShares(Scaled):
    pass


@NegativeShares.implements(aten.neg.default)
def _(x: Any) -> Any:
    return NegativeShares(-x.codes, x.scale)


@NegativeShares.implements(aten.mul_.Tensor)
def _(x: Any, other: Any) -> Any:
    if isinstance(other, torch.Tensor):
        return NotImplemented
    x.scale.mul_(other)
    return x


def test_what_is_given_shares_no_memory_that_is_written() -> None:
    (clause,) = CLAUSES
    with pytest.raises(BrokenClause, match=r"^x after aten\.neg\.default\(x\)\.mul_\(3\) has wrong values"):
        clause.check(Trial(scaled(NegativeShares), is_quick=True))


def test_the_clause() -> None:
    (clause,) = CLAUSES
    with pytest.raises(BrokenClause, match=r"aten\.div\.Tensor\(dense, x\) has wrong values"):
        clause.check(Trial(scaled(SecondIsFirst)))


def test_operators_with_a_rule_are_drawn() -> None:
    assert aten.digamma.default in drawn_operators([])
    assert aten.trace.default not in drawn_operators([])
    assert aten.trace.default in drawn_operators([aten.trace])


def test_dtypes_are_drawn() -> None:
    assert "aten.sum.default(x, dtype=another dtype)" in [call.text for call in drawn_calls(aten.sum.default, EXAMPLE)]


def test_what_is_written_is_a_clone() -> None:
    x = TwoTensor(EXAMPLE.clone(), EXAMPLE.clone())
    for call in drawn_calls(aten.mul_.Scalar, EXAMPLE):
        call.program(x)
    assert x.a.equal(EXAMPLE)


def test_most_operators_have_calls() -> None:
    without = [str(func) for func in drawn_operators([]) if not drawn_calls(func, EXAMPLE)]
    of_integers = ("bitwise", "xor", "shift", "gcd", "lcm")
    assert len([name for name in without if not any(word in name for word in of_integers)]) < 40
