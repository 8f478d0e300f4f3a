"""The part of a guard that compares what tensors have to do with one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, trace_joint
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Scope, global_state, relations_of
from subclass_aot.engine.guards.aliasing_guards import refuse_other_relations
from subclass_aot.kit.flatten import FlattenPlan

pytestmark = pytest.mark.usefixtures("either_way")


def writes(*args: Any) -> Any:
    args[0].add_(1)
    return args[0] * 2


def guard_of(fn: Callable[..., Any], *args: Any) -> Callable[..., bool]:
    """Returns what tells whether other values have to do with one another what these have."""
    signature, arguments = trace_joint(fn, *args).signature, Arguments.of(fn, args, {})
    source = GuardedSource("guard", "values, leaves", "", (False, "False"))
    values = [f"values[{i}]" for i in range(len(arguments.values))]
    slots = signature.index_map.slots
    names = {f"{slot.outer}{''.join(slot.path)}": f"leaves[{i}]" for i, slot in enumerate(slots)}
    refuse_other_relations(source, relations_of(arguments, global_state(), Scope.of(signature)), values, names)
    source.line("return True")
    fits = source.build()
    return lambda *others: bool(fits(others, FlattenPlan.of(list(others)).unwrap(list(others))))


def parts(*places: tuple[int, int]) -> list[torch.Tensor]:
    """Parts of one storage that are no views of one another: as of two calls of `torch.from_numpy`."""
    base = torch.zeros(8)
    return [base[first:last].detach() for first, last in places]


@pytest.mark.parametrize(
    ("first", "others", "fit"),
    [
        (parts((0, 3), (2, 5)), parts((0, 3), (2, 5)), True),
        (parts((0, 3), (2, 5)), parts((0, 3), (1, 4)), False),
        (parts((0, 3), (2, 5)), parts((1, 4), (3, 6)), False),
        (parts((0, 3), (2, 5)), [torch.zeros(3), torch.zeros(3)], False),
        (parts((0, 3), (2, 5)), [torch.zeros(9)[:3].detach(), torch.zeros(9)[2:5].detach()], False),
        (parts((0, 3)) + parts((0, 3)), parts((0, 3), (3, 6)), False),
        (parts((0, 3)) + parts((0, 3)), parts((0, 3)) + parts((2, 5)), True),
        ([TwoTensor(*parts((0, 3), (3, 6)))], [TwoTensor(*parts((0, 3), (3, 6)))], True),
        ([TwoTensor(*parts((0, 3), (3, 6)))], [TwoTensor(torch.zeros(3), torch.zeros(3))], False),
        ([TwoTensor(torch.zeros(3), torch.zeros(3))], [TwoTensor(*parts((0, 3), (3, 6)))], False),
    ],
)
def test_how_leaves_share_storage(first: list[Any], others: list[Any], fit: bool) -> None:
    fits = guard_of(writes, *first)
    assert fits(*first) and fits(*others) is fit


def test_a_storage_of_another_size() -> None:
    """The base of overlapping leaves is the whole storage."""
    larger = torch.zeros(9)
    fits = guard_of(writes, *parts((0, 3), (2, 5)))
    assert not fits(larger[:3].detach(), larger[2:5].detach())


def test_leaves_of_autograd() -> None:
    x = torch.ones(2, requires_grad=True)
    fits = guard_of(lambda x: x * 2, x)
    assert fits(torch.ones(2, requires_grad=True)) and not fits(x * 1)
    fits = guard_of(lambda x: x * 2, x * 1)
    assert fits(x * 2) and not fits(x)


def test_without_gradients_leaves_are_alike() -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        fits = guard_of(lambda x: x * 2, x)
    assert fits(x) and fits(x * 1)


def test_views_of_one_tensor_and_what_only_shares_its_memory() -> None:
    """A write that autograd sees reaches the views of one tensor: the oracle is their `grad_fn` in eager mode."""
    base = torch.zeros(8)
    x = torch.ones(3, requires_grad=True)

    def program(a: Any, b: Any, x: Any) -> Any:
        a.mul_(x)
        return b * 1

    apart = base[:3].detach(), base[2:5].detach()
    fits = guard_of(program, *apart, x)
    assert fits(*apart, x) and not fits(base[:3], base[2:5], x)
