"""Real tensors that require grad are refused, since a graph has no gradient of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import MetaTensor, trace_joint
from subclass_aot.errors import TraceError
from tests.constants import out_of_sight
from tests.engine.graph.recording import raw, recorded


@pytest.mark.parametrize("what", [nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True)])
def test_a_tensor_that_wants_a_gradient_must_be_an_argument(what: torch.Tensor) -> None:
    place = out_of_sight(what)

    def program(x: torch.Tensor) -> Any:
        return x * place.kept  # the line

    with pytest.raises(TraceError) as caught:
        trace_joint(program, torch.ones(3))
    message = str(caught.value)
    assert message.startswith("A tensor that requires grad is used by the traced function without being an argument")
    assert f"{__file__}:" in message and "return x * place.kept  # the line" in message
    assert ("nn.Parameter of shape [3]" in message) == isinstance(what, nn.Parameter)
    with torch.no_grad():
        assert trace_joint(program, torch.ones(3)).graph_module(torch.ones(3))[0].sum() == 3
    assert trace_joint(lambda x: x * place.kept.detach(), torch.ones(3))


def test_what_was_refused_once_is_not_held_against_the_next_operator() -> None:
    weight = torch.ones(3, requires_grad=True)

    def program(x: MetaTensor) -> MetaTensor:
        with pytest.raises(TraceError, match="its gradient would be lost"):
            x * weight
        return x.sin()

    recorder, _ = recorded(program)
    assert raw(recorder) == ["_constant0", "sin"]


def test_a_fork_and_a_recorder_that_forgets_know_of_none() -> None:
    weight = torch.ones(3, requires_grad=True)
    recorder, x = recorded(lambda x: x)
    recorder.listeners.lost_gradients.note(weight)
    with recorder.fork():
        x.sin()
    recorder.forget_tensors()
    with recorder:
        x.cos()
    recorder.listeners.lost_gradients.note(weight)
    with recorder, pytest.raises(TraceError, match="without being an argument of it"):
        x.tan()
