"""Tensors and calls in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import FlattenPlan, Int8Weight, TwoTensor
from subclass_aot.call import Arguments
from subclass_aot.guards import difference, facts, global_state
from subclass_aot.guards.recompile_reasons import describe_tensor

pytestmark = pytest.mark.usefixtures("either_way")


ones = torch.ones(2, 3)


@pytest.mark.parametrize(
    "tensor, text",
    [
        (ones, "Tensor float32[2, 3] on cpu"),
        (ones.t(), "Tensor float32[3, 2] on cpu stride (1, 3)"),
        (torch.ones((), dtype=torch.int8, device="meta"), "Tensor int8[] on meta"),
        (nn.Parameter(ones), "Parameter float32[2, 3] on cpu requires_grad"),
        (ones.clone().requires_grad_() * 1, "Tensor float32[2, 3] on cpu requires_grad non-leaf"),
        (torch.eye(2).to_sparse(), "Tensor float32[2, 2] on cpu"),
    ],
)
def test_dense(tensor: torch.Tensor, text: str) -> None:
    assert describe_tensor(tensor) == text


def test_wrappers_say_what_is_inside() -> None:
    outside, _, inside = describe_tensor(TwoTensor(ones, ones.double())).partition(" {")
    assert outside.endswith("TwoTensor float32[2, 3] on cpu")
    assert inside == "a: Tensor float32[2, 3] on cpu, b: Tensor float64[2, 3] on cpu}"
    assert "{codes: Tensor int8[2, 3] on cpu, scale: Tensor float32[2, 1] on cpu}" in describe_tensor(
        Int8Weight.from_float(ones)
    )
    nested = TwoTensor(TwoTensor(ones, ones), ones)
    assert describe_tensor(nested).count("TwoTensor") >= 2


def of(fn: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    arguments = Arguments.of(fn, args, kwargs)
    leaves = FlattenPlan.of(arguments.values).unwrap(arguments.values)
    return facts(arguments, leaves, global_state())


def test_facts_of_a_call() -> None:
    layer = nn.Linear(3, 2)
    found = of(layer, ones, scale=[1.5, ones], name="a")
    assert found["grad mode"] == "True" and found["inference mode"] == "False"
    assert found["default dtype"] == "torch.float32"
    assert found["self.training"] == "True"
    assert found["self.weight"] == "Parameter float32[2, 3] on cpu requires_grad"
    assert found["args[0]"] == "Tensor float32[2, 3] on cpu"
    assert found["kwargs['scale'][1]"] == "the same tensor as args[0]"
    assert {"float 1.5", "str 'a'"} <= set(found.values())
    assert found["leaves that share storage"] == "none"
    assert "(0, 1)" in of(torch.add, ones[0], ones[1])["leaves that share storage"]


def test_long_values_are_cut() -> None:
    found = of(print, "x" * 1000)
    assert max(len(v) for k, v in found.items() if k.startswith("Python value")) < 90


def test_difference_names_what_differs_and_nothing_else() -> None:
    before, now = of(torch.add, ones, 1), of(torch.add, ones.double(), 1)
    assert difference(before, before) == []
    assert difference(before, now) == ["args[0]: Tensor float32[2, 3] on cpu before, Tensor float64[2, 3] on cpu now"]
    with torch.no_grad():
        assert difference(before, of(torch.add, ones, 1)) == ["grad mode: True before, False now"]
    assert any("absent now" in line for line in difference(of(nn.Linear(3, 2), ones), of(nn.Linear(3, 2, False), ones)))


def test_tensors_with_one_history_are_named() -> None:
    x = torch.ones(3)
    found = of(torch.add, x[1:], x[:2])
    assert found["tensors with one history"] == "args[0] and args[1]"
    assert found["storage offset of leaf 0"] == "1"
