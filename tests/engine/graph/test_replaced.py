"""What is called in place of functions of torch while a program is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Spec
from subclass_aot.engine.graph import REPLACED, Recorder
from subclass_aot.engine.graph.listeners.places import PLACES
from subclass_aot.engine.graph.replaced.fronts import FRONTS
from subclass_aot.engine.graph.replaced.gradients import GRADIENTS
from subclass_aot.engine.graph.replaced.higher_order import HIGHER_ORDER
from subclass_aot.engine.graph.replaced.in_place_views import IN_PLACE_VIEWS
from subclass_aot.engine.graph.replaced.lost_out import LOST_OUT
from subclass_aot.engine.graph.replaced.resolved import RESOLVED
from subclass_aot.engine.graph.replaced.symbolic_indices import SYMBOLIC_INDICES
from subclass_aot.engine.graph.replaced.tensors_of_numbers import TENSORS_OF_NUMBERS
from subclass_aot.engine.graph.replaced.watched import WATCHED
from subclass_aot.meta import Replaced
from tests.engine.graph.recording import SPEC, raw, recorded


def test_it_is_all_that_the_room_has() -> None:
    parts = (
        HIGHER_ORDER,
        IN_PLACE_VIEWS,
        LOST_OUT,
        PLACES,
        RESOLVED,
        FRONTS,
        GRADIENTS,
        SYMBOLIC_INDICES,
        WATCHED,
        TENSORS_OF_NUMBERS,
    )
    assert {name: rule for part in parts for name, rule in part.items()} == REPLACED
    assert len(REPLACED) == sum(map(len, parts))


@pytest.mark.parametrize("replacement", dict.fromkeys(REPLACED.values()), ids=lambda replacement: replacement.__name__)
def test_the_recorder_is_the_first_argument(replacement: Callable[..., Any]) -> None:
    assert next(iter(inspect.signature(replacement).parameters)) == "recorder"


@pytest.mark.parametrize(
    ("program", "spec", "nodes"),
    [
        (lambda x: torch.ops.higher_order.cond(True, torch.sin, torch.cos, (x,)), SPEC, ["sin"]),
        (lambda x: x.conj().resolve_conj(), Spec.of(torch.ones(3, dtype=torch.complex64)), ["_conj_physical", "clone"]),
    ],
)
def test_it_is_called_for_what_the_program_calls(program: Callable[[Any], Any], spec: Spec, nodes: list[str]) -> None:
    recorder = Recorder()

    def within(x: Any) -> Any:
        with Replaced(recorder, REPLACED):
            return program(x)

    recorded(within, spec, recorder=recorder)
    assert raw(recorder) == nodes
