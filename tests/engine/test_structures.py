"""Classes whose tensors share a structure: another one registers as jagged tensors do, and no stage is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.engine.structures import STRUCTURES, structure_in, structure_of, structure_slots, structures_in
from subclass_aot.kit.flatten import FlattenPlan


class Grid(sa.WrapperTensor, fallback="each"):
    """Values at places that several of them share."""

    values: torch.Tensor
    places: torch.Tensor


entered: list[str] = []


class GridStructure:
    def is_structure(self, path: tuple[str, ...]) -> bool:
        return path[0] == ".places"

    def on_traced(self, tensor: Any) -> None:
        entered.append("traced")

    def gradient_like(self, like: Any, gradient: Any) -> Any:
        entered.append("gradient")
        return Grid(gradient.values.detach(), like.places)

    def with_known_values(self, blank: Any, traced: Any, known: Any) -> Any:
        return blank

    @contextmanager
    def around(self) -> Iterator[None]:
        entered.append("around")
        yield


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRUCTURES, f"{Grid.__module__}.{Grid.__qualname__}", GridStructure())
    entered.clear()


def test_without_it_nothing_is_asked() -> None:
    plan = FlattenPlan.of([Grid(torch.ones(2), torch.zeros(2)), torch.ones(1)])
    assert structures_in(plan.metas) == {} and structure_slots(plan.metas, plan.index_map) == ()
    assert structure_of(torch.Tensor) is None


@pytest.mark.usefixtures("registered")
def test_its_slots_and_what_a_program_runs_in() -> None:
    grids = [Grid(torch.ones(2), torch.zeros(2)), torch.ones(1), Grid(torch.ones(2), torch.zeros(2))]
    plan = FlattenPlan.of(grids)
    slots = structure_slots(plan.metas, plan.index_map)
    assert [plan.unwrap(grids)[slot] is grids[i].places for slot, i in zip(slots, (0, 2), strict=True)] == [True, True]
    assert list(structure_in(plan, grids)) == list(slots)
    compiled = sa.aot_compile(lambda x: x * 2)
    found = compiled(grids[0])
    assert torch.equal(found.values, torch.full((2,), 2.0)) and sorted(entered) == ["around", "traced"]
    entered.clear()
    sa.aot_compile(lambda x: x * 2)(torch.ones(2))
    assert not entered
    grid = Grid(torch.ones(2), torch.zeros(2)).requires_grad_()
    twice = sa.aot_compile(lambda x: x * 2)(grid)
    (found,) = torch.autograd.grad(twice, grid, Grid(torch.ones(2), grid.places))
    assert torch.equal(found.values, torch.full((2,), 2.0)) and found.places is grid.places and "gradient" in entered
