"""Listeners begin with what they are about, and forks go on with what has begun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.graph import LISTENERS, Recorder
from subclass_aot.engine.graph.listeners.of_recorder import _BY_EFFECT, ORDER, Listeners
from subclass_aot.errors import DataDependentError
from tests.engine.graph.recording import recorded

OF_EVERY_PROGRAM = {"mutations", "random_numbers", "real_tensors", "stack_traces", "annotations"}
OF_WRITES = {"argument_overlap", "internal_overlap", "arrays"}


def begun(recorder: Recorder) -> set[str]:
    return {name for name in ORDER if name in recorder.listeners}


CONSTANT = torch.ones(3, requires_grad=True)


@pytest.mark.parametrize(
    ("function", "also"),
    [
        (lambda x: x * 2, set()),
        (lambda x: x.view(3, 1).t(), set()),
        (lambda x: torch.rand_like(x), set()),
        (lambda x: TwoTensor(x, x).cos(), set()),
        (lambda x: x.sin().mul_(x), OF_WRITES),
        (lambda x: x.sin().t_(), {*OF_WRITES, "mutated_views"}),
        (lambda x: x.as_strided((2,), (1,)), {"places", "mutated_views"}),
        (lambda x: x.unfold(0, 1, 1), {"places"}),
        (lambda x: x.to(torch.complex64).conj(), {"lazy_views"}),
        (lambda x: x.sum().item(), {"data_dependent"}),
        (lambda x: x + CONSTANT.detach(), {"lost_gradients"}),
    ],
)
def test_a_listener_begins_with_what_it_is_about(function: Callable[..., Any], also: set[str]) -> None:
    recorder = Recorder()
    with suppress(DataDependentError):  # nothing has values here
        recorded(function, recorder=recorder)
    assert begun(recorder) == OF_EVERY_PROGRAM | also


def test_another_listener_that_begins_hears_of_operators_that_were_called_before() -> None:
    recorder, _ = recorded(lambda x: x.sin().to(torch.complex64).conj())
    assert "lazy_views" in recorder.listeners
    recorded(torch.sin, recorder=recorder)
    (plan,) = [plan for plan in recorder.listeners.plans.values() if plan.func is torch.ops.aten.sin.default]
    assert recorder.listeners.lazy_views in [method.__self__ for method in plan.before]


def test_forks_have_what_has_begun_and_share_what_is_shared() -> None:
    listeners = Listeners()
    listeners.lazy_views  # noqa: B018  # begins
    fork = listeners.fork()
    assert "lazy_views" in fork and fork.lazy_views is not listeners.lazy_views
    assert "mutated_views" not in fork
    fork.mutated_views  # noqa: B018
    assert "mutated_views" not in listeners
    assert "places" not in fork
    assert fork.places.began is listeners.places.began, "it began in what they have in common"
    assert "own_generators" not in fork
    assert listeners.own_generators is fork.own_generators and "own_generators" in listeners.fork().fork()


def test_what_is_no_listener() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        Listeners().nothing_like_it  # noqa: B018
    assert "looks" not in begun(Recorder())


def test_each_name_has_a_class_and_what_is_not_imported_yet_begins_as_the_table_has_it() -> None:
    """Else its effects and operators would have to be known before it is imported."""
    assert set(LISTENERS) == set(ORDER)
    for name in ORDER:
        kind = LISTENERS[name]
        if kind.__module__.startswith("subclass_aot.subjects"):
            effects = [effect for effect, names in _BY_EFFECT.items() if name in names]
            assert set(kind.effects) == set(effects) and not (kind.operators or kind.is_of_every_program)
