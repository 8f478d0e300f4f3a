"""Sets of operators: membership, iteration, union and difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import ops
from subclass_aot.base.operators import OperatorKind, OperatorSet

aten: Any = torch.ops.aten


def test_membership_and_iteration_agree() -> None:
    listed = list(ops.pointwise)
    assert len(listed) > 200 and aten.add.Tensor in listed and aten.add_.Tensor not in listed
    assert all(func in ops.pointwise for func in listed)
    assert not {*listed} & {*ops.reductions} and aten.sum.default in {*ops.reductions}


def test_operators_that_are_registered_later_are_members() -> None:
    before = set(ops.pointwise)
    library = torch.library.Library("of_sets", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
    assert set(ops.pointwise) - before == {torch.ops.of_sets.thrice.default}


def test_a_packet_is_refused_and_others_are_no_members() -> None:
    with pytest.raises(
        TypeError, match=r"aten\.add has overloads, each of its own kind: ask for one, such as aten\.add\."
    ):
        _ = aten.add in ops.pointwise
    assert torch.add not in ops.pointwise and torch.ops.higher_order.cond not in ops.pointwise


def test_union() -> None:
    both = ops.pointwise | ops.reductions
    assert aten.add.Tensor in both and aten.sum.default in both and aten.t.default not in both
    assert set(both) == {*ops.pointwise, *ops.reductions}
    assert both == ops.reductions | ops.pointwise and hash(both) == hash(ops.reductions | ops.pointwise)
    assert both.description == f"{ops.pointwise.description}; or {ops.reductions.description}"


def test_difference() -> None:
    some = ops.pointwise - {aten.where, aten.add.Tensor, aten.sum.default}
    assert set(ops.pointwise) - set(some) == {aten.where.self, aten.add.Tensor}
    assert some == ops.pointwise - {aten.where.self} - [aten.add.Tensor]
    assert (some | ops.pointwise) == ops.pointwise
    assert (some | ops.reductions) == (ops.pointwise | ops.reductions) - {aten.where, aten.add.Tensor}
    assert (some | (ops.pointwise - {aten.where})) == ops.pointwise - {aten.where}


def test_what_cannot_be_left_out() -> None:
    with pytest.raises(TypeError, match="is no operator: leave out overloads or packets"):
        ops.pointwise - {torch.add}
    with pytest.raises(TypeError, match="unsupported operand"):
        ops.pointwise - ops.reductions  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        ops.pointwise | {aten.mm.default}  # type: ignore[operator]


SETS = [
    ops.pointwise,
    ops.reductions,
    ops.pointwise | ops.reductions,
    ops.pointwise - {aten.add},
    ops.pointwise - {aten.add, aten.mul},
    (ops.pointwise - {aten.add}) | ops.views,
    (ops.pointwise | ops.views) - {aten.t},
]


@pytest.mark.parametrize("first", SETS, ids=repr)
@pytest.mark.parametrize("second", SETS, ids=repr)
def test_parts_and_overlap_are_those_of_what_is_listed(first: OperatorSet, second: OperatorSet) -> None:
    mine, theirs = set(first), set(second)
    assert (first <= second) == (mine <= theirs)
    assert first.shares(second) == bool(mine & theirs)
    assert (first == second) == (mine == theirs)
    assert set(first | second) == mine | theirs


def test_repr() -> None:
    assert repr(ops.in_place) == "ops.in_place"
    assert repr(ops.views | ops.factories) == "ops.factories | ops.views"
    assert repr(ops.views - {aten.t}) == "ops.views - {aten.t.default}"
    both = (ops.views | ops.factories) - {aten.t, aten.zeros_like.default}
    assert repr(both) == "(ops.factories | ops.views) - {aten.t.default, aten.zeros_like.default}"


def test_a_set_of_one_kind() -> None:
    assert OperatorSet(frozenset({OperatorKind.VIEWS})) == ops.views
