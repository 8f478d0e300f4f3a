"""Modules that were given to a distributed wrapper are refused, in the thread that traces."""

from __future__ import annotations

import threading

import pytest
import torch

from subclass_aot.base import _torch
from subclass_aot.engine.call.parallel import refuse_parallel
from subclass_aot.errors import TraceError


class Model(torch.nn.Linear):
    """Stands for one that is distributed."""


@pytest.fixture
def distributed(monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(
        "subclass_aot.base._torch.modules.is_parallel_wrapper",
        lambda module: "replicate" if type(module) is Model else None,
    )
    return Model(2, 2)


def test_the_error_names_the_module_and_its_wrapper() -> None:
    wrapper = torch.nn.Module()
    wrapper.module = Model(2, 2)
    with pytest.raises(TraceError, match="calls a module, Model, that was given to DDP"):
        refuse_parallel(wrapper, "DDP")
    refuse_parallel(wrapper, None)


def test_calls_are_refused_within_the_block(distributed: Model) -> None:
    x = torch.ones(1, 2)
    with _torch.stand_ins.stand_ins():
        torch.nn.Linear(2, 2)(x)
        with pytest.raises(TraceError, match="given to replicate"):
            torch.nn.Sequential(distributed)(x)
    assert distributed(x).shape == (1, 2)


def test_other_threads_may_call_them(distributed: Model) -> None:
    shapes: list[torch.Size] = []
    thread = threading.Thread(target=lambda: shapes.append(distributed(torch.ones(1, 2)).shape))
    with _torch.stand_ins.stand_ins():
        thread.start()
        thread.join()
    assert shapes == [(1, 2)]
