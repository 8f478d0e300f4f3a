"""A rule that returns something else than the schema promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.errors import RuleResultError
from tests.wrapper.classes import fresh

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
