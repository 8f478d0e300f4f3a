"""Calls that are drawn find rules that forget an argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Sparse24Weight, TwoTensor, WrapperTensor, ops, structure
from subclass_aot.base.operators import OperatorSet
from subclass_aot.testing.contract.drawn_calls import CLAUSES, drawn_calls, drawn_operators, examples_of
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
    with pytest.raises(
        BrokenClause,
        match=r"^x after aten\.neg\.default\(x\)\.mul_\(3\), which has the memory of \['scale'\], has wrong",
    ):
        clause.check(Trial(scaled(NegativeShares), is_quick=True))


class Ordered(WrapperTensor):
    """Rows, and the order they come in."""

    rows: torch.Tensor
    order: torch.Tensor = structure()

    def to_plain(self) -> torch.Tensor:
        return self.rows[self.order]

    def from_plain(self, plain: torch.Tensor) -> Any:
        return type(self)(plain[self.order.argsort()], self.order.clone())


class Masked(WrapperTensor):
    rows: torch.Tensor
    mask: torch.Tensor = structure()

    def to_plain(self) -> torch.Tensor:
        return self.rows * self.mask

    def from_plain(self, plain: torch.Tensor) -> Any:
        return type(self)(plain * self.mask, self.mask.clone())


def masked(cls: Any) -> Any:
    return lambda: cls(torch.randn(4, 6), torch.tensor([True, False, True, True, True, False]))


def ordered(cls: Any) -> Any:
    return lambda: cls(torch.randn(4, 6), torch.tensor([2, 0, 3, 1]))


def shares(base: Any, name: str, *operators: Any, clone: bool = False) -> Any:
    """A class whose rule for operators gives what it computes the structure of its argument."""
    cls = type(f"Shares{base.__name__}", (base,), {})

    def rule(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, cls) or any(isinstance(each, torch.Tensor) for each in args):
            return NotImplemented
        structure = getattr(x, name)
        return cls(op(x.rows, *args, **kwargs), structure.clone() if clone else structure)

    for op in operators:
        cls.implements(op)(rule if isinstance(op, OperatorSet) else functools.partial(rule, op))
    return cls


SHARING = {
    "by a rule": (ordered, shares(Ordered, "order", aten.neg.default)),
    "by a rule of few calls": (ordered, shares(Ordered, "order", aten.mul.Tensor)),
    "by a rule for a set": (ordered, shares(Ordered, "order", ops.pointwise)),
    "a mask": (masked, shares(Masked, "mask", aten.abs.default)),
    "a mask, by a rule for a set": (masked, shares(Masked, "mask", ops.pointwise - {aten.mul})),
}


@pytest.mark.parametrize("is_quick", [True, False])
@pytest.mark.parametrize("what", SHARING)
def test_structure_that_is_shared(what: str, is_quick: bool) -> None:
    (clause,), (make, cls) = CLAUSES, SHARING[what]
    with pytest.raises(BrokenClause, match=r"copy_\(x with another (order|mask)\), which has the memory of"):
        clause.check(Trial(make(cls), is_quick=is_quick))


def test_structure_of_its_own() -> None:
    (clause,) = CLAUSES
    clause.check(Trial(ordered(shares(Ordered, "order", ops.pointwise - {aten.mul}, aten.mul.Tensor, clone=True))))
    clause.check(Trial(masked(shares(Masked, "mask", aten.abs.default, aten.neg.default, clone=True))))
    clause.check(Trial(ordered(Ordered)))


FORGETS: dict[str, tuple[Any, Callable[..., Any], str]] = {
    "all keywords": (ops.pointwise, lambda op, *args, **kwargs: op(*map(plain, args)), "alpha=2"),
    "one keyword": (
        ops.pointwise,
        lambda op, *args, decimals=0, **kwargs: op(*map(plain, args), **kwargs, **{"decimals": 0} if
            op is aten.round.decimals else {}),
        r"aten\.round\.decimals\(x, decimals=",
    ),
    "a mode": (
        ops.pointwise,
        lambda op, *args, rounding_mode=None, **kwargs: op(*map(plain, args), **kwargs, **{"rounding_mode": None} if
            "mode" in op._overloadname else {}),
        "rounding_mode='floor'",
    ),
    "the second bound": (
        ops.pointwise,
        lambda op, *args, **kwargs: op(*map(plain, args[:2] if "clamp" in str(op) else args), **kwargs),
        r"aten\.clamp\.default\(x, ",
    ),
    "dims": (ops.reductions, lambda op, x, *args, **kwargs: op(plain(x), **kwargs), r"amax\.default\(x, \[0\]"),
    "keepdim": (
        ops.reductions,
        lambda op, x, *args, keepdim=False, **kwargs: op(plain(x), *args[:1], **kwargs),
        "True",
    ),
    "of a part of a set": (ops.pointwise - {aten.gelu}, lambda op, *args, **kwargs: op(*map(plain, args)), "alpha=2"),
    "in place": (
        ops.in_place,
        lambda op, x, *args, **kwargs: x.copy_(op(plain(x).clone(), *map(plain, args))),
        "alpha=2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGETS)
def test_what_rules_for_sets_forget(what: str) -> None:
    operators, rule, says = FORGETS[what]

    class Right(Scaled):
        pass

    class Wrong(Scaled):
        pass

    @Right.implements(operators)
    def _(op: Any, *args: Any, **kwargs: Any) -> Any:
        if op in ops.in_place:
            return args[0].copy_(op(plain(args[0]).clone(), *map(plain, args[1:]), **kwargs))
        return op(*map(plain, args), **kwargs)

    Wrong.implements(operators)(rule)
    (clause,) = CLAUSES
    clause.check(Trial(scaled(Right), is_quick=True))
    with pytest.raises(BrokenClause, match=says):
        clause.check(Trial(scaled(Wrong), is_quick=True))


def test_few_operators_of_a_set_are_drawn() -> None:
    names = {str(func) for func in examples_of(ops.pointwise, EXAMPLE)}
    assert names >= {"aten.add.Tensor", "aten.gelu.default", "aten.clamp.default", "aten.div.Tensor_mode"}
    assert len(names) < 12 and examples_of(aten.add, EXAMPLE) == []


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
