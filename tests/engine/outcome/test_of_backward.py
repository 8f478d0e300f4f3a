"""What backward finds in objects, and what it leaves there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.engine.outcome import BackwardOutcome, Present
from subclass_aot.engine.outcome.of_backward import ABSENT
from subclass_aot.engine.signature import JointSignature


def signature_of(function: Any, *args: Any) -> JointSignature:
    return aot_compile(function)._specialization_for(args, {}).signature


def left_by(hook: Any, state: Any) -> BackwardOutcome:
    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: hook(state, gradient))
        return y * y

    found = signature_of(function, torch.ones(3, requires_grad=True)).backward_outcome
    assert found is not None
    return found


def test_nothing_is_left_where_hooks_only_compute() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 2)
        return y * y

    signature = signature_of(function, torch.ones(3, requires_grad=True))
    assert signature.backward_outcome is None and signature.outcome.kept == ()


def test_what_is_added_to_a_list_expects_nothing_there() -> None:
    found = left_by(lambda state, gradient: state["log"].append(gradient), {"log": []})
    assert found.expected == () and [change.appended for change in found.outcome.changes] == [True]


@pytest.mark.parametrize(
    ("before", "now", "is_as_expected"),
    [
        ({"n": 1}, {"n": 1}, True),
        ({"n": 1}, {"n": 2}, False),
        ({"n": 1}, {"n": 1.0}, False),
        ({"n": 1}, {}, False),
        ({}, {}, True),
        ({}, {"n": 1}, False),
        ({"n": None}, {"n": None}, True),
        ({"n": None}, {"n": torch.ones(2)}, False),
        ({"n": torch.ones(2)}, {"n": torch.zeros(2)}, True),
        ({"n": torch.ones(2)}, {"n": None}, False),
        ({"n": []}, {"n": [1]}, True),
        ({"n": []}, {"n": 1}, False),
    ],
)
def test_backward_compares_what_it_replaces(before: Any, now: Any, is_as_expected: bool) -> None:
    found = left_by(lambda state, gradient: state.__setitem__("n", gradient), before)
    present = found.present([now], [0])
    assert (present is None) == is_as_expected
    if present is not None:
        (table,) = present
        assert not table.is_whole and [key for key, _ in table.entries] == ["n"]
        assert (table.entries[0][1] is ABSENT) == (now == {})


def test_a_tensor_that_hooks_read_must_be_the_same_one() -> None:
    def hook(state: Any, gradient: Any) -> None:
        state.mean = state.mean * 0.5 + gradient

    mean = torch.zeros(3)
    found = left_by(hook, SimpleNamespace(mean=mean))
    assert found.present([SimpleNamespace(mean=mean), mean], [0]) is None
    assert found.present([SimpleNamespace(mean=mean.clone()), mean], [0]) is not None


def test_all_of_a_list_that_is_replaced_is_compared() -> None:
    def hook(state: Any, gradient: Any) -> None:
        state[:] = [gradient]

    def holder(*elements: Any) -> Any:
        return [list(elements)]

    found = left_by(hook, [1, 2])
    assert found.present(holder(1, 2), [0]) is None
    assert found.present(holder(1, 3), [0]) is not None
    assert found.present(holder(1, 2, 3), [0]) is not None


def test_what_is_present_is_described_as_far_as_hooks_can_know() -> None:
    tensor = torch.ones(2)
    assert Present(0, (("n", 1),), False).described == Present(0, (("n", 1),), False).described
    assert Present(0, (("n", 1),), False).described != Present(0, (("n", True),), False).described
    assert Present(0, (("n", tensor),), False).described == Present(0, (("n", tensor + 1),), False).described
    assert Present(0, (("n", tensor),), False).described != Present(0, (("n", torch.ones(3)),), False).described
    assert Present(0, (("n", []),), False).described is None
    assert Present(0, (("n", tensor), ("m", 1)), False).tensors == [tensor]


def test_a_retained_gradient_is_no_change() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y.retain_grad()
        return y, y * y

    found = signature_of(function, torch.ones(3, requires_grad=True)).backward_outcome
    assert found is not None and found.retained == ((0, 0),) and found.puts_tensors
    assert found.outcome.changes == ()
