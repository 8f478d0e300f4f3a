"""Small models of `transformers`: the first call, a step of training, and inference, beside eager and `torch.compile`.

They have a few thousand parameters, so nearly all that is measured is what it costs to call anything at all.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import transformers
from torch import nn

import subclass_aot as sa
from benchmarks.row import Result, Target
from subclass_aot.engine.compile import CompiledFunction
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare
from tests.models.architectures import ARCHITECTURES, make

TRAINING = Target.within(1.25, "step of a model of transformers, against eager")
INFERENCE = Target.within(1.25, "inference of a model of transformers, against eager")

OURS, EAGER, DYNAMO = "subclass_aot", "eager", 'torch.compile(backend="aot_eager")'


def run(budget: Budget, names: Iterable[str] | None = None, with_dynamo: bool = True) -> Iterator[Result]:
    """Measures every architecture; each side has a model of its own."""
    transformers.logging.set_verbosity_error()
    for name in ARCHITECTURES if names is None else names:
        yield from measure(name, budget, with_dynamo)


def measure(name: str, budget: Budget, with_dynamo: bool = True) -> Iterator[Result]:
    """The rows of one architecture."""
    given = ARCHITECTURES[name].inputs(2)
    model = make(name).train()
    first: dict[str, float] = {}
    sides: dict[str, Any] = {EAGER: model, OURS: sa.aot_compile(copy.deepcopy(model))}
    models = {EAGER: model, OURS: sides[OURS].fn}
    if with_dynamo:
        torch.compiler.reset()
        models[DYNAMO] = copy.deepcopy(model)
        sides[DYNAMO] = torch.compile(models[DYNAMO], backend="aot_eager")
    for side in list(sides)[1:]:
        took = first_call(sides[side], given)
        if took is None:
            del sides[side], models[side]
        else:
            first[side] = took
    if len(first) > 1:
        comparison = Comparison({side: (us,) for side, us in first.items()})
        yield Result("first call, forward and backward", name, comparison, OURS, {DYNAMO: None})
    steps = {side: Side(step, (function, given, models[side])) for side, function in sides.items()}
    yield Result("training step", name, compare(steps, budget), OURS, against(sides, TRAINING))
    for each in models.values():
        each.eval()
    calls = {side: Side(infer, (function, given)) for side, function in sides.items()}
    yield Result("inference", name, compare(calls, budget), OURS, against(sides, INFERENCE))


def against(sides: Iterable[str], target: Target) -> dict[str, Target | None]:
    """The other sides; the target is for eager."""
    return {side: target if side == EAGER else None for side in sides if side != OURS}


def first_call(function: Callable[..., Any], given: dict[str, Any]) -> float | None:
    """Microseconds until the first gradients are there; None where torch does not compile it."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given).loss.backward()
    except Exception:
        if isinstance(function, CompiledFunction):
            raise
        return None
    return (time.process_time() - start) * 1e6


def step(function: Callable[..., Any], given: dict[str, Any], model: nn.Module) -> None:
    """Forward and backward."""
    model.zero_grad()
    function(**given).loss.backward()


@torch.no_grad()
def infer(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Forward alone."""
    return function(**given)
