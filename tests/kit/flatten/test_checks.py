"""What does not fit a plan is named: where, what was planned, and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.errors import LeafCountError, PlanError
from subclass_aot.kit.flatten import checks

DENSE = torch.ones(2)
TWO = TwoTensor(DENSE, DENSE)


class Local:
    TwoTensor = type("TwoTensor", (torch.Tensor,), {"__module__": "elsewhere", "__qualname__": "TwoTensor"})


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: checks.wrong_class(3, TwoTensor, "args[0]"), "args[0]: planned as TwoTensor, got int.\n"),
        (
            lambda: checks.wrong_class(TWO, Local.TwoTensor, "args[0]"),
            "planned as TwoTensor, got subclass_aot.tensors.two_tensor.TwoTensor",
        ),
        (lambda: checks.not_exactly_tensor(TWO, torch.Tensor, "x"), "x: planned as Tensor, got TwoTensor."),
        (lambda: checks.not_exactly_tensor(3, torch.Tensor, "x"), "x: planned as Tensor, got int."),
        (lambda: checks.not_exactly_tensor(DENSE, int, "x"), "x: planned as int, got Tensor."),
        (lambda: checks.wrong_container((1,), list, [0], "x.parts"), "x.parts: planned as list, got tuple."),
        (
            lambda: checks.wrong_container([1], list, [0, 1], "x.parts"),
            "x.parts: planned as a list of length 2, got 1.",
        ),
        (
            lambda: checks.wrong_container({"b": 1}, dict, ["a"], "x.parts"),
            "x.parts: planned as a dict of keys ['a'], got ['b'].",
        ),
        (
            lambda: checks.wrong_leaf(DENSE.int(), torch.Tensor, torch.float32, "leaf 1"),
            "leaf 1: planned as a leaf of torch.float32, got torch.int32.",
        ),
        (
            lambda: checks.tensor_instead_of_value(DENSE, "a size", "leaf 1"),
            "leaf 1: planned as a size, got Tensor.\nAre the leaves in the order of `unwrap`?",
        ),
    ],
)  # fmt: skip
def test_what_is_said(check: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        check()
    assert message in str(caught.value)


def test_other_classes_of_dense_tensors_pass() -> None:
    checks.not_exactly_tensor(torch.nn.Parameter(DENSE), torch.Tensor, "x")
    checks.wrong_leaf(torch.nn.Parameter(DENSE), torch.Tensor, torch.float32, "leaf 0")
    checks.wrong_leaf(3, int, None, "leaf 0")


@pytest.mark.parametrize(("values", "got"), [([1, 2, 3], "3"), (iter(()), "an object of type tuple_iterator")])
def test_counts(values: Any, got: str) -> None:
    assert str(checks.wrong_value_count(values, 2, "args")).startswith(f"args: planned for 2 values, got {got}.")
    error = checks.wrong_leaf_count(values, 2, "leaves")
    assert type(error) is LeafCountError and str(error).startswith(f"leaves: planned for 2 leaves, got {got}.")
