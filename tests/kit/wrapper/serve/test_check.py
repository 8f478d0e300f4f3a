"""A rule that returns something else than the schema promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import WrapperTensor, aot_compile
from subclass_aot.errors import OperatorRuleError, RuleResultError
from tests.kit.wrapper.classes import fresh

aten = torch.ops.aten


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
        (
            aten.unbind.int,
            lambda x, d=0: [x.payload],
            lambda x: x.unbind(),
            ["got:      a list of 1: (Tensor of size [2, 2] and torch.float32)"],
        ),
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
    for part in [f"The rule of Fresh for {op} returned", "rule:     ", "test_check.py", "schema:   aten::", *parts]:
        assert part in str(error.value), str(error.value)


def test_a_view_of_a_rule_shares_the_outer_storage_of_its_base() -> None:
    cls = fresh()
    cls.implements(aten.t.default)(lambda self: cls(self.payload.t()))
    cls.implements(aten.unbind.int)(lambda self, dim=0: [cls(part) for part in self.payload.unbind(dim)])
    x = cls(torch.zeros(2, 3))
    for view in (x.t(), *x.unbind()):
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
        assert view._base is x


def test_written_tensors_are_found_among_keywords() -> None:
    cls = fresh()
    cls.implements(aten.add.out)(lambda self, other, *, out: out)
    x, out = cls(torch.zeros(2)), cls(torch.zeros(2))
    assert torch.add(x, 1, out=out) is out


@pytest.mark.parametrize(
    ("op", "rule", "call", "expected", "got"),
    [
        (aten.t.default, lambda x: type(x)(x.payload), lambda x: x.t(), [3, 2], [2, 3]),
        (aten.mm.default, lambda x, y: torch.zeros(1), lambda x: torch.mm(x, torch.ones(3, 4)), [2, 4], [1]),
        (aten.neg.default, lambda x: type(x)(x.payload.double()), lambda x: -x, [2, 3], "torch.float64"),
        (aten.unbind.int, lambda x, d=0: [type(x)(x.payload)] * 2, lambda x: x.unbind(), [3], [2, 3]),
        (aten.max.dim, lambda x, d: (x, x), lambda x: x.max(0), [3], [2, 3]),
        (aten.sum.dim_IntList, lambda x, *_, **__: x, lambda x: x.sum(1, dtype=torch.float64), "torch.float64", [2, 3]),
        (aten.unbind.int, lambda x, d=0: [type(x)(x.payload[0])], lambda x: x.unbind(), "2 tensors", "a list of 1"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_results_of_other_sizes_or_dtypes(
    op: Any, rule: Any, call: Any, expected: Any, got: Any, compiled: bool
) -> None:
    cls = fresh()
    cls.implements(op)(rule)
    x = cls(torch.zeros(2, 3))
    for _ in range(2):
        with pytest.raises(RuleResultError) as error:
            (aot_compile(call) if compiled else call)(x)
        text = str(error.value)
        assert (
            str(expected) in text.partition("expected:")[2].partition("got:")[0]
            and str(got) in text.partition("got:")[2]
        )


def test_what_nobody_knows_is_taken() -> None:
    """An operator without a shape function, one that refuses such arguments, and symbolic sizes."""
    cls = fresh()
    cls.implements(aten.mm.default)(lambda x, y: torch.zeros(7))
    cls.implements(aten.nonzero.default)(lambda x: torch.zeros(1, 2, dtype=torch.int64))
    x = cls(torch.zeros(2, 3))
    assert torch.mm(x, torch.ones(4, 4)).shape == (7,) and x.nonzero().shape == (1, 2)
    other = fresh()
    other.implements(aten.t.default)(lambda x: other(x.payload.t()))
    assert aot_compile(lambda x: x.t(), dynamic=True)(other(torch.zeros(4, 3))).shape == (3, 4)


def test_a_rule_that_declined_is_named() -> None:
    base = fresh()
    base.implements(aten.slice.Tensor)(lambda x, *_: NotImplemented)
    derived = type("Derived", (base,), {})
    for cls in (base, derived):
        with pytest.raises(OperatorRuleError) as error:
            cls(torch.zeros(2, 2))[:1]
        text = str(error.value)
        assert "declined: it returned NotImplemented" in text and "test_check.py" in text and "Write one" not in text
    cls = fresh(fallback="each")
    cls.implements(aten.neg.default)(lambda x: NotImplemented)
    assert type(-cls(torch.zeros(2))) is cls


@pytest.mark.parametrize("call", [lambda x, y: x @ y, lambda x, y: x * y[0, 0], lambda x, y: y @ x])
def test_python_s_operators_show_what_is_wrong(call: Any) -> None:
    cls = fresh()
    cls.implements(aten.mm.default, aten.mul.Tensor)(lambda *args: torch.ones(7))
    with pytest.raises(RuleResultError, match="returned"):
        call(cls(torch.ones(2, 2)), torch.ones(2, 2))


def test_a_new_tensor_is_not_the_argument() -> None:
    """A write into the one would reach the other."""

    class Box(WrapperTensor):
        inside: torch.Tensor

    @Box.implements(torch.ops.aten.abs, torch.ops.aten.clone, torch.ops.aten.maximum)
    def _(self: Any, *args: Any, **kwargs: Any) -> Any:
        return args[-1] if args else self

    box, other = Box(torch.ones(2)), Box(torch.ones(2))
    for wrong in (lambda: box.abs(), lambda: box.clone(), lambda: box.maximum(other)):
        with pytest.raises(RuleResultError, match="a new tensor, as a clone of what it was given"):
            wrong()
