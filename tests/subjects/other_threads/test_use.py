"""Traced tensors that another thread meets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import TraceError
from tests.meanwhile import elsewhere


def test_what_has_no_data_in_another_thread_is_named() -> None:
    made: list[Any] = []
    weights = [torch.ones(2, requires_grad=True)]

    def program(x: torch.Tensor) -> torch.Tensor:
        made.append(x * 2)
        with pytest.raises(TraceError, match="that another thread has made, since it traces a function"):
            elsewhere(lambda: made[0] + 1)
        with pytest.raises(TraceError, match="the gradient would be lost"):
            elsewhere(lambda: weights[0] * 2)
        return made.pop() * weights[0]

    assert sa.aot_compile(program)(torch.ones(2)).tolist() == [2, 2]


def test_a_leaf_that_another_thread_has_kept() -> None:
    """It stands for the input still, when the trace is over."""
    held, kept = [torch.arange(3.0)], []

    def program(x: torch.Tensor) -> torch.Tensor:
        kept.append(elsewhere(lambda: held[0]))
        return x + held[0]

    sa.aot_compile(program)(torch.ones(3))
    assert elsewhere(lambda: (kept[0] + 1).tolist()) == [1, 2, 3]


def test_a_wrapper_with_symbolic_sizes() -> None:
    """Some of its placeholders stand for sizes."""
    weight, seen = sa.Int8Weight.from_float(torch.randn(4, 6)), []

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(elsewhere(lambda: weight.to_plain().tolist()))
        return x @ weight.t()

    compiled = sa.aot_compile(program, dynamic=True)
    torch.testing.assert_close(compiled(torch.ones(3, 6)), torch.ones(3, 6) @ weight.t())
    assert seen == [weight.to_plain().tolist()] and "stay numbers" not in compiled.explain()


POOL = ThreadPoolExecutor(1)


@pytest.mark.parametrize("is_result", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("run", [elsewhere, lambda compute: POOL.submit(compute).result()])
def test_a_function_that_computes_in_threads_of_its_own(run: Any, is_held: bool, is_result: bool) -> None:
    """What they compute for one call would be a constant of all."""
    held = [torch.ones(3)]

    def program(x: torch.Tensor) -> torch.Tensor:
        made = run(lambda: ((held[0] if is_held else x) * 2 + 1).sin())
        return made if is_result else made + x

    with pytest.raises(TraceError, match="is newer than the trace, and another thread has computed"):
        sa.aot_compile(program)(torch.ones(3))
