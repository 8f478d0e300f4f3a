"""A rule that does not take what it is called with is refused when it is given."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from subclass_aot import ops
from subclass_aot.errors import DefinitionError
from tests.kit.wrapper.classes import fresh

aten = torch.ops.aten

WRONG: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "the operator first": ((aten.add.Tensor, aten.sub.Tensor), lambda op, a, b, alpha=1: a, "`op`, and gets the first"),
    "the operator first, of any name": ((aten.add.Tensor,), lambda which, a, b: a, "missing a required argument: 'b'"),
    "the operator first, then any": ((aten.exp.default, aten.sin.default), lambda op, *args, **kwargs: op, "`op`"),
    "the operator first, for a packet": ((aten.mul,), lambda func, a, b: a, "`func`"),
    "too few": ((aten.mm.default,), lambda a: a, "too many positional arguments"),
    "too few of the second": ((aten.neg.default, aten.mm.default), lambda a: a, r"for aten\.mm\.default cannot"),
    "none of a packet": ((aten.lerp,), lambda a, b: a, "too many positional arguments"),
    "without a keyword that is required": ((aten.div.Tensor_mode,), lambda a, b: a, "'rounding_mode'"),
    "a keyword that no operator has": ((aten.neg.default,), lambda a, *, mask: a, "'mask'"),
    "a set, without the operator": ((ops.pointwise,), lambda x: x, "does not take the operator"),
    "beside a set": ((ops.pointwise, aten.mm.default), lambda op, x: x, r"for aten\.mm\.default cannot"),
    "a method": ((aten.mm.default,), functools.partial(lambda a, b, c, d: a, 1), "missing a required argument: 'd'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused(what: str) -> None:
    operators, rule, why = WRONG[what]
    cls = fresh()
    with pytest.raises(DefinitionError, match=rf"(?s){why}.*# wrong\n    def _\(.*# right") as caught:
        cls.implements(*operators)(rule)
    assert "comes the operator where a set" in str(caught.value) and not cls.__wrapper_declaration__.rules


def test_the_line_that_is_right_has_the_parameters_of_the_schema() -> None:
    with pytest.raises(DefinitionError, match=r"def rule\(self, other, \*, alpha=1\)    # right"):

        @fresh().implements(aten.add.Tensor)
        def rule(op: Any, a: Any, b: Any) -> Any: ...


@pytest.mark.parametrize(
    ("operators", "rule"),
    [
        ((aten.add.Tensor, aten.neg.default), lambda *args: args[0]),
        ((aten.add.Tensor,), lambda a, b: a),  # without what has a default
        ((aten.sum,), lambda x, dim: x),  # of a packet, some overloads
        ((aten.neg.default, ops.pointwise), lambda op, *args, **kwargs: args[0]),
        ((ops.views,), lambda op, x, size: x),
        ((aten.neg.default,), functools.partial(lambda op, x: x, aten.neg.default)),
        ((aten.neg.default,), torch.neg),  # a function in C
        ((torch.ops.higher_order.cond,), lambda pred, yes, no, operands: operands),
    ],
)
def test_what_fits_is_taken(operators: Any, rule: Any) -> None:
    assert fresh().implements(*operators)(rule) is rule
