"""Numbers that change beside what does not: they are read at each call, and all else once; every change is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.engine.guards import StaticInputCache

COUNT = 2.5


def change(table: dict[str, Any], key: str, value: Any) -> None:
    table[key] = value


def rename(table: dict[str, Any]) -> None:
    table["none more"] = table.pop("none")


def reorder(table: dict[str, Any]) -> None:
    table["scale"] = table.pop("scale")


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the number": lambda table: change(table, "rate", 0.75),
    "the whole number": lambda table: change(table, "steps", 9),
    "to another class": lambda table: change(table, "rate", 3),
    "to zero": lambda table: change(table, "rate", 0.0),
    "to one": lambda table: change(table, "steps", 1),
    "below zero": lambda table: change(table, "steps", -4),
    "a constant": lambda table: change(table, "scale", 4.0),
    "a text": lambda table: change(table, "kind", "other"),
    "a tensor": lambda table: change(table, "weight", torch.full((3,), 5.0)),
    "a list": lambda table: change(table, "inside", [3.0]),
    "what is in the list": lambda table: table["inside"].append(8.0),
    "what is in the tensor": lambda table: table["weight"].add_(1),
    "nothing": lambda table: change(table, "none", 2.0),
    "one more": lambda table: change(table, "more", 2.0),
    "one gone": lambda table: table.pop("scale"),
    "nothing gone": lambda table: table.pop("none"),
    "another name for nothing": rename,
    "another order": reorder,
}


def compute(x: torch.Tensor, table: dict[str, Any]) -> torch.Tensor:
    x = x * table["rate"] * table["steps"] + table["weight"] * table.get("scale", 7.0) + sum(table["inside"])
    x = x + len(table) + (1 if table.get("none", 3) is None else 2) + (0.5 if "more" in table else 0)
    return x * (2 if table["kind"] == "one" else 3) + [*table].index("steps") + COUNT


def made() -> dict[str, Any]:
    return {
        "scale": 2.0, "rate": 0.5, "steps": 2, "none": None, "kind": "one", "weight": torch.ones(3), "inside": [1.0],
    }  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("kind", ["dict", "attributes"])
def test_every_change_is_noticed(name: str, kind: str) -> None:
    if (name, kind) == ("another order", "attributes"):
        pytest.skip("attributes have no order that counts")
    holders = [SimpleNamespace(table=made(), module=torch.nn.Linear(3, 3)) for _ in range(2)]
    holders[1].module = copy.deepcopy(holders[0].module)
    functions = []
    for holder in holders:
        table = SimpleNamespace()
        vars(table).update(holder.table)
        if kind == "attributes":
            holder.table = table

        def function(x: torch.Tensor, holder: Any = holder) -> torch.Tensor:
            table = holder.table if kind == "dict" else vars(holder.table)
            return compute(holder.module(x), table)

        functions.append(function)
    compiled = aot_compile(functions[0])

    def compare() -> None:
        x = torch.rand(2, 3, requires_grad=True)
        assert torch.equal(compiled(x), functions[1](x))

    tables = [holder.table if kind == "dict" else vars(holder.table) for holder in holders]
    for rate, steps in ((0.5, 2), (0.25, 3), (0.125, 4), (0.3, 5), (0.3, 5)):
        for table in tables:
            table.update(rate=rate, steps=steps)
        compare()
    for table in tables:
        CHANGES[name](table)
    compare()
    compare()
    for table in tables:
        table.update(rate=0.7, steps=6)
    compare()


def test_another_rate_is_no_reason_to_read_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    @aot_compile
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = torch.rand(3, 4)
    for i in range(6):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        step(x)
    reads = []
    read = StaticInputCache.read
    monkeypatch.setattr(StaticInputCache, "read", lambda self, leaves: reads.append(1) or read(self, leaves))
    for i in range(6):
        optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
        step(x)
    assert not reads
    compiled = len(step.recompiles)
    optimizer.param_groups[0]["momentum"] = 0.9
    step(x)
    assert len(step.recompiles) == compiled + 1


def test_a_number_that_the_function_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.count = 0
            self.scale: float | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return self.linear(x) * self.count * (2.0 if self.scale is None else self.scale)

    module = Counter()
    other = copy.deepcopy(module)
    compiled = aot_compile(module)
    x = torch.rand(2, 3)
    for _ in range(8):
        assert torch.equal(compiled(x), other(x))
    assert module.count == other.count == 8
    for each in (module, other):
        each.scale = 3.0
    assert torch.equal(compiled(x), other(x))
    for each in (module, other):
        each.linear.weight.data = torch.ones(3, 3)
    assert torch.equal(compiled(x), other(x))
    assert module.count == other.count == 10


def test_numbers_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3)
    weight = torch.rand(3)
    compiled = aot_compile(lambda x: x * COUNT + weight)
    for count in (1.5, 2.5, 3.5, 4.5, 1.0, 0.0, 2):
        monkeypatch.setitem(globals(), "COUNT", count)
        assert torch.equal(compiled(x), x * count + weight)
