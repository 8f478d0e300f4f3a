"""Operators of libraries that write what another of their arguments shares are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Spec
from subclass_aot.errors import MutationError
from subclass_aot.graph import Recorder
from subclass_aot.meta import Storage
from tests.graph.recording import raw, recorded

SQUARE = Spec.of(torch.ones(3, 3))


@torch.library.custom_op("test_argument_overlap::fill", mutates_args={"x"})
def fill(x: torch.Tensor, y: torch.Tensor) -> None:
    """Writes one tensor into another."""
    x.copy_(y)


@pytest.mark.parametrize(
    "program", [lambda x: fill(x, x.t()), lambda x: fill(x[0], x[1]), lambda x: fill((y := x * 1)[0], y[1])]
)
def test_what_shares_a_storage(program: Any) -> None:
    with pytest.raises(MutationError, match=r"(?s)fill.*writes `x`, which shares memory.*test_argument_overlap.py"):
        recorded(program, SQUARE)


def test_inputs_that_overlap() -> None:
    def program(x: Any, y: Any) -> None:
        fill(x, y)
        recorder.listeners.argument_overlap.of_inputs = {Storage.of(x): (0, 1), Storage.of(y): (0, 1)}
        with pytest.raises(MutationError, match="shares memory with another of its arguments"):
            fill(x, y)

    recorder = Recorder()
    recorded(program, SQUARE, SQUARE, recorder=recorder)
    assert raw(recorder) == ["fill"]


def test_what_lies_apart_and_what_is_given_again_to_be_read() -> None:
    recorder, _ = recorded(lambda x: (fill(x, x * 1), fill(x, x), x.add_(x.t())), SQUARE)
    assert raw(recorder) == ["mul", "fill", "fill_1", "t", "add_"]
