"""What hooks put into objects, as outputs of graphs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aot_compile
from subclass_aot.engine.outcome import BackwardOutcome
from subclass_aot.engine.outputs import ComputedSymints, Constant, SameAsOutput, Value
from subclass_aot.engine.trace.backward_outcome import CodeThatRuns
from subclass_aot.errors import MutationError


def put_by(put: Any, x: Any, dynamic: bool = False) -> BackwardOutcome:
    state: dict[str, Any] = {}

    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: state.update(put(x, y, gradient)))
        return y.sin() * y

    found = aot_compile(function, dynamic=dynamic)._specialization_for((x,), {}).signature.backward_outcome
    assert found is not None and not state
    return found


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def test_a_gradient_is_an_output_of_backward_and_stands_once_for_all_places() -> None:
    found = put_by(lambda x, y, gradient: {"one": gradient, "two": (gradient, 1)}, leaf())
    assert [type(output) for output in found.outputs] == [Value, SameAsOutput]
    (value, _) = found.outputs
    assert isinstance(value, Value) and not value.requires_grad


def test_a_wrapper_is_made_of_its_leaves() -> None:
    x = TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_()
    (value,) = put_by(lambda x, y, gradient: {"one": gradient}, x).outputs
    assert isinstance(value, Value) and len(value.leaves) == 2 and value.meta.cls is TwoTensor


def test_a_tensor_of_forward_requires_grad() -> None:
    (value,) = put_by(lambda x, y, gradient: {"one": y}, leaf()).outputs
    assert isinstance(value, Value) and value.requires_grad


def test_an_argument_is_no_output() -> None:
    found = put_by(lambda x, y, gradient: {"one": x}, leaf())
    assert found.outputs == ()


def test_sizes_are_numbers_that_forward_computes() -> None:
    found = put_by(lambda x, y, gradient: {"one": gradient.shape, "two": gradient.shape[0] + 1}, leaf(), True)
    assert [type(output) for output in found.outputs] == [ComputedSymints, ComputedSymints]
    known = put_by(lambda x, y, gradient: {"one": gradient.shape}, leaf())
    assert [type(output) for output in known.outputs] == [Constant]


def test_code_that_runs_is_found_by_its_names() -> None:
    state = {"key": 1}

    def run() -> int:
        return state["key"] + len("text".strip())

    with CodeThatRuns() as code:
        run()
        torch.nn.Linear(2, 2)
    assert {"state", "key", "strip"} <= code.names
    assert "reset_parameters" not in code.names and sys.getprofile() is None


def test_a_profile_of_somebody_else_goes_on() -> None:
    events: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        with CodeThatRuns() as code:
            leaf()
    finally:
        sys.setprofile(before)
    assert "call" in events and code.names == set()


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (lambda x, y, gradient: {"one": x.detach()}, "shares memory with an argument"),
        (lambda x, y, gradient: {"one": x.detach()[1:]}, "shares memory with an argument"),
        (lambda x, y, gradient: {"one": gradient.clone().requires_grad_()}, "that requires grad"),
        (lambda x, y, gradient: {"one": [torch.nn.Parameter(gradient.clone())]}, "that requires grad"),
    ],
)
def test_what_backward_cannot_give_is_refused(put: Any, why: str) -> None:
    with pytest.raises(MutationError, match=f"state\\['one'\\].*\n?.*{why}"):
        put_by(put, leaf())


def test_a_hook_whose_code_has_no_hash() -> None:
    """Dynamo makes such code."""
    seen: list[float] = []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(1.0)
        return gradient * 3

    hook.__code__ = hook.__code__.replace(co_consts=(*hook.__code__.co_consts, {}))

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(hook)
        return y

    x = torch.ones(3, requires_grad=True)
    assert torch.autograd.grad(aot_compile(program)(x).sum(), x)[0].tolist() == [6.0] * 3
    assert seen == [1.0]
