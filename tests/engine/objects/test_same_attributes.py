"""Attributes of plain values are compared to the last bit, several at once; modules of one kind share what does it."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.engine.objects.same_attributes import SameAttributes

NAN = float("nan")


@pytest.mark.parametrize(
    "value, same, others",
    [
        (1, 1, [1.0, True, 2, None]),
        (0.0, 0.0, [-0.0, 0, 0.5]),
        (NAN, float("nan"), [0.0]),
        (None, None, [0, False, ""]),
        (False, False, [0, None, True]),
        ((1, 2), tuple([1, 2]), [(1, 2.0), [1, 2], (1,)]),
        ("text", "".join(["te", "xt"]), ["other", b"text"]),
        (len, len, [max, None]),
        (torch.float32, torch.float32, [torch.float64]),
    ],
)
def test_what_is_the_same(value: Any, same: Any, others: list[Any]) -> None:
    compare = SameAttributes(3, ("a", "b"), (value, "b"))
    assert compare({"a": value, "b": "b", "c": 1}) and compare({"c": 1, "b": "b", "a": same})
    assert not any(compare({"a": other, "b": "b", "c": 1}) for other in others)
    assert not compare({"a": value, "b": "b"}) and not compare({"a": value, "b": "b", "c": 1, "d": 2})
    assert not compare({"a": value, "c": 1, "d": 2})
    without_length = SameAttributes(None, ("a", "b"), (value, "b"))
    assert without_length({"a": value, "b": "b"}) and not without_length({"a": value})


def test_a_dict_of_another_class_runs_no_code() -> None:
    assert not SameAttributes(None, ("a", "b"), (0, 0))(defaultdict(int))


class Scaled(nn.Module):
    """A module with several numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift, self.name, self.limit = 2, 0.0, "plain", None
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        found = x * self.scale + self.shift
        return found if self.limit is None else found.clamp(max=self.limit)


CHANGES: dict[str, Callable[[Any], object]] = {
    "another number": lambda m: setattr(m, "scale", 3),
    "a number of another class": lambda m: setattr(m, "scale", 2.0),
    "a zero of another sign": lambda m: setattr(m, "shift", -0.0),
    "None is a number now": lambda m: setattr(m, "limit", 0.5),
    "a new attribute": lambda m: setattr(m, "new", 1),
    "one attribute less, one more": lambda m: (delattr(m, "name"), setattr(m, "other", "plain")),
    "training": lambda m: m.train(False),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("of", ["module", "argument"])
def test_a_change_of_one_is_seen(change: str, of: str) -> None:
    models = [Scaled(), Scaled()]

    def program(held: Any, x: Any) -> Any:
        return held.models[1](held.models[0](x)) if of == "argument" else models[1](models[0](x))

    compiled = sa.aot_compile(program)
    x, held = torch.tensor([-1.0, 0.0, 1.0]), types.SimpleNamespace(models=models)
    assert torch.equal(compiled(held, x), program(held, x))
    CHANGES[change](models[1])
    assert torch.equal(compiled(held, x), program(held, x))
    assert len(compiled.recompiles) == 1
    for _ in range(2):
        assert torch.equal(compiled(held, x), program(held, x))
    assert len(compiled.recompiles) == 1


def test_equal_values_that_are_other_objects_compile_nothing() -> None:
    model = Scaled()
    compiled = sa.aot_compile(model)
    compiled(torch.ones(3))
    model.name, model.shift, model.scale = "".join(["pl", "ain"]), float("0.0"), int("2")
    compiled(torch.ones(3))
    assert not compiled.recompiles


def test_modules_of_one_kind_share_what_compares_them() -> None:
    model = nn.Sequential(*[Scaled() for _ in range(8)])
    compiled = sa.aot_compile(model)
    compiled(torch.ones(3))
    lines = [line for line in compiled.source.splitlines() if ".__dict__)" in line and "same_attributes" in line]
    assert len(lines) == 16 and len({line.partition("(")[0] for line in lines}) == 2
