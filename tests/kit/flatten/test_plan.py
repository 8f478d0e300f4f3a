"""Plans: round trips, and what a plan says about values and leaves that do not fit."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.base import exact, hooks
from subclass_aot.errors import InnerTensorError, LeafCountError, PlanError
from subclass_aot.kit.flatten import FlattenPlan, straight


@pytest.fixture(autouse=True, params=["careful", "in one call", "depth by depth", "in chunks", "without the extension"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test runs with every kind of generated unwrap."""
    monkeypatch.setattr(hooks, "one_call_pays", request.param != "careful")
    monkeypatch.setattr(straight, "FEW", 10**6 if request.param == "in one call" else 0)
    if request.param == "in chunks":
        monkeypatch.setattr(straight, "MANY", 0)
        monkeypatch.setattr(straight, "CHUNK", 4)
    if "without" in request.param:
        monkeypatch.setattr(hooks, "exactly", exact.exactly)
        monkeypatch.setattr(hooks, "have_exactly", exact.have_exactly)
    name: str = request.param
    return name


class OtherTwo(TwoTensor):
    """Another class with the same inner names."""


def two(value: float = 1.0, dtype: torch.dtype = torch.float32) -> TwoTensor:
    return TwoTensor(torch.full((2,), value, dtype=dtype), torch.full((2,), -value, dtype=dtype))


VALUES = (torch.ones(3), TwoTensor(two(1), two(2)), "text", None, two(3, torch.float64))


def test_round_trip_keeps_every_leaf() -> None:
    plan = FlattenPlan.of(VALUES)
    leaves = plan.unwrap(VALUES)
    assert len(leaves) == len(plan.index_map.slots) == 9
    values = plan.wrap(leaves)
    assert [type(value) for value in values] == [type(value) for value in VALUES]
    assert all(x is y for x, y in zip(plan.unwrap(values), leaves, strict=True))


@pytest.mark.parametrize("sequence", [list, tuple, iter])
def test_any_sequence_will_do(sequence: Callable[[Any], Any]) -> None:
    plan = FlattenPlan.of(sequence(VALUES))
    assert len(plan.wrap(sequence(plan.unwrap(sequence(VALUES))))) == len(VALUES)


def test_no_values() -> None:
    plan = FlattenPlan.of([])
    assert (plan.unwrap([]), plan.wrap([])) == ([], ())


def test_the_source_is_that_of_the_functions() -> None:
    plan = FlattenPlan.of(VALUES, where="inputs")
    functions = dict.fromkeys((plan.unwrap, plan.unwrap_checked, plan.wrap))  # the first two may be the same
    assert plan.source == "\n\n\n".join(map(inspect.getsource, functions)) + "\n"
    assert "'inputs[1].a'" in plan.source


@pytest.mark.parametrize("count", [1, 10, 3000])
def test_many_values(count: int) -> None:
    values = [two() for _ in range(count)]
    plan = FlattenPlan.of(values)
    leaves = plan.unwrap(values)
    assert leaves[-1] is values[-1].b
    assert plan.wrap(leaves)[-1].b is values[-1].b


def test_the_ways_are_different(way: str) -> None:
    text = FlattenPlan.of(VALUES).unwrap.__source__  # type: ignore[attr-defined]
    words = {"careful": ".__class__ is not", "in one call": "are_exactly(", "in chunks": "exactly(args[0:2]"}
    assert words.get(way, "exactly([") in text
    text = FlattenPlan.of(VALUES).wrap.__source__  # type: ignore[attr-defined]
    assert ("have_exactly(leaves, " in text) is (way != "careful")


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_deep_trees_keep_the_order_of_leaves(count: int, depth: int) -> None:
    def tree(depth: int) -> Any:
        return TwoTensor(tree(depth - 1), tree(depth - 1)) if depth else torch.ones(1)

    def read(value: Any) -> list[Any]:
        return [*read(value.a), *read(value.b)] if isinstance(value, TwoTensor) else [value]

    values = [tree(depth) for _ in range(count)]
    leaves = [leaf for value in values for leaf in read(value)]
    found = FlattenPlan.of(values).unwrap(values)
    assert len(found) == len(leaves) and all(x is y for x, y in zip(found, leaves, strict=True))


def test_values_of_different_depth_side_by_side() -> None:
    """Locals that serve for several values hold a wrapper for one and a leaf for another."""
    x, y = torch.ones(2), torch.zeros(2)
    pair = TwoTensor(x, y)
    values = [TwoTensor(pair, x), TwoTensor(x, pair), pair, TwoTensor(TwoTensor(pair, y), pair), x, TwoTensor(y, x)]
    leaves = [x, y, x, x, x, y, x, y, x, y, y, x, y, x, y, x]
    plan = FlattenPlan.of(values)
    found = plan.unwrap(values)
    assert len(found) == len(leaves) and all(a is b for a, b in zip(found, leaves, strict=True))
    for wrong in (values[:-1], [*values, x], [*values, *values], []):
        with pytest.raises(PlanError, match=rf"^args: planned for 6 values, got {len(wrong)}\."):
            plan.unwrap(wrong)
    with pytest.raises(PlanError, match=r"^args\[5\]: planned as TwoTensor, got Tensor\."):
        plan.unwrap([*values[:-1], x])


class MaybeTwo(TwoTensor):
    """Names its second tensor where it is absent, too."""

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor | None = None) -> Any:
        return TwoTensor.__new__(cls, a, a)

    def __init__(self, a: torch.Tensor, b: torch.Tensor | None = None) -> None:
        self.a, self.b = a, b


def test_absent_inner_tensors() -> None:
    x = torch.ones(2)
    plan = FlattenPlan.of([MaybeTwo(x), MaybeTwo(MaybeTwo(x))])
    assert [leaf is x for leaf in plan.unwrap([MaybeTwo(x), MaybeTwo(MaybeTwo(x))])] == [True, True]
    with pytest.raises(PlanError, match=r"^args\[0\]\.b: planned as NoneType, got Tensor\."):
        plan.unwrap([MaybeTwo(x, x), MaybeTwo(MaybeTwo(x))])
    with pytest.raises(PlanError, match=r"^args\[1\]\.a\.b: planned as NoneType, got Tensor\."):
        plan.unwrap([MaybeTwo(x), MaybeTwo(MaybeTwo(x, x))])


def test_the_first_thing_that_does_not_fit_is_reported() -> None:
    """Not the one that is found first: the broken wrapper has no `a` to read."""
    broken = two()
    plan = FlattenPlan.of([TwoTensor(two(), two()), TwoTensor(broken, broken)])
    other = TwoTensor(two(), two())
    del other.a
    with pytest.raises(PlanError, match=r"^args\[0\]\.a: planned as TwoTensor, got OtherTwo\.") as caught:
        plan.unwrap([TwoTensor(OtherTwo(two().a, two().a), two()), other])
    assert caught.value.__context__ is None
    with pytest.raises(AttributeError, match="a"):
        plan.unwrap([TwoTensor(two(), two()), other])


def test_values_from_an_iterator_that_do_not_fit() -> None:
    with pytest.raises(PlanError, match=r"^args\[4\]: planned as TwoTensor, got Tensor\."):
        FlattenPlan.of(VALUES).unwrap(iter([*VALUES[:4], torch.ones(2)]))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"^args: planned for 5 values, got an object of type list_iterator\."):
        FlattenPlan.of(VALUES).unwrap(iter([*VALUES, *VALUES, 1]))  # type: ignore[arg-type]


def test_a_plan_does_not_keep_itself() -> None:
    plan = FlattenPlan.of(VALUES)
    plan.unwrap(VALUES)
    gone = weakref.ref(plan)
    del plan
    assert gone() is None


def test_a_plan_serves_other_sizes_of_leaf_and_dense_classes() -> None:
    plan = FlattenPlan.of([torch.ones(2), torch.nn.Parameter(torch.ones(2)), 3])
    values = [torch.nn.Parameter(torch.ones(4)), torch.ones(4), "no tensor"]
    assert plan.unwrap(values) == values


def swap(position: int, value: object) -> list[object]:
    return [value if i == position else old for i, old in enumerate(VALUES)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (VALUES[:-1], r"^args: planned for 5 values, got 4\.\nMake a plan for each list of values\.$"),
        ((*VALUES, 1), r"^args: planned for 5 values, got 6\."),
        (5, r"^args: planned for 5 values, got an object of type int\."),
        (swap(1, torch.ones(2)), r"^args\[1\]: planned as TwoTensor, got Tensor\.\nA plan is made for one tree of"),
        (swap(1, OtherTwo(two(), two())), r"^args\[1\]: planned as TwoTensor, got OtherTwo\."),
        (swap(1, TwoTensor(two(), torch.ones(2))), None),
        (swap(1, TwoTensor(two(), OtherTwo(two().a, two().a))), r"^args\[1\]\.b: planned as TwoTensor, got OtherTwo\."),
        (swap(0, two()), r"^args\[0\]: planned as Tensor, got TwoTensor\."),
        (swap(0, None), r"^args\[0\]: planned as Tensor, got NoneType\."),
        (swap(2, torch.ones(2)), r"^args\[2\]: planned as str, got Tensor\."),
        (swap(3, two()), r"^args\[3\]: planned as NoneType, got TwoTensor\."),
    ],
)
def test_values_that_do_not_fit(values: Any, message: str | None) -> None:
    plan = FlattenPlan.of(VALUES)
    with pytest.raises(PlanError, match=message or r"^args\[1\]\.b: planned as TwoTensor, got Tensor\."):
        plan.unwrap(values)


def test_classes_of_one_name_are_told_apart() -> None:
    impostor = type("TwoTensor", (TwoTensor,), {})
    with pytest.raises(PlanError, match=r"planned as TwoTensor, got .*test_plan\.TwoTensor\."):
        FlattenPlan.of([two()]).unwrap([impostor(torch.ones(2), torch.ones(2))])


@pytest.mark.parametrize("count", [0, 8, 10])
def test_another_number_of_leaves(count: int) -> None:
    with pytest.raises(LeafCountError, match=rf"^args: planned for 9 leaves, got {count}\.\nGive every leaf"):
        FlattenPlan.of(VALUES).wrap([torch.ones(2)] * count)


@pytest.mark.parametrize(
    ("position", "leaf", "message"),
    [
        (2, 3, r"^args\[1\]\.a\.b: planned as Tensor, got int\."),
        (2, None, r"^args\[1\]\.a\.b: planned as Tensor, got NoneType\."),
        (2, two(), r"^args\[1\]\.a\.b: planned as Tensor, got TwoTensor\."),
        (0, two(), r"^args\[0\]: planned as Tensor, got TwoTensor\."),
        (5, torch.ones(2), r"^args\[2\]: planned as str, got Tensor\."),
        (7, torch.ones(2), r"^args\[4\]\.a: planned as a leaf of torch\.float64, got torch\.float32\.\nAre the leaves"),
    ],
)
def test_leaves_that_do_not_fit(position: int, leaf: object, message: str) -> None:
    plan = FlattenPlan.of(VALUES)
    leaves = plan.unwrap(VALUES)
    leaves[position] = leaf
    with pytest.raises(PlanError, match=message):
        plan.wrap(leaves)


def test_an_error_has_no_second_error_behind_it() -> None:
    with pytest.raises(PlanError) as caught:
        FlattenPlan.of(VALUES).unwrap([])
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_an_inner_tensor_that_requires_grad() -> None:
    inner = torch.ones(2, requires_grad=True)
    with pytest.raises(InnerTensorError, match=r"^values\[0\]\.a: this inner tensor of a TwoTensor requires grad"):
        FlattenPlan.of([TwoTensor(inner, inner)], where="values")
