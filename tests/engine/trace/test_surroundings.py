"""What is around a trace stays out of it, and an error in it says whose it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.engine.sizes import DynamicSizes
from subclass_aot.engine.trace.surroundings import with_symbols
from subclass_aot.errors import DataDependentError, MutationError
from subclass_aot.meta.symbols import current_symbols
from tests.engine.trace.stages import begun


def nothing(*args: Any) -> None:
    """Stands for a function: the test itself runs operators."""


def test_operators_are_recorded_within_the_block_only() -> None:
    with begun(nothing, torch.rand(3)) as (recorder, _, inputs):
        inputs.traced[0].sin()
        assert torch.compiler.is_compiling()
    assert [n.target for n in recorder.in_order()][1:] == [torch.ops.aten.sin.default]
    assert not torch.compiler.is_compiling()
    torch.rand(3).sin()
    assert len(recorder.in_order()) == 2


def test_hooks_on_saved_tensors_hear_nothing() -> None:
    heard = []
    with torch.autograd.graph.saved_tensors_hooks(heard.append, lambda tensor: tensor):
        with begun(nothing, torch.rand(3, requires_grad=True)) as (_, _, inputs):
            inputs.traced[0].exp()
        assert not heard


def test_reads_of_data_are_refused() -> None:
    x = torch.rand(3)
    with pytest.raises(DataDependentError, match="a traced tensor has none"), begun(nothing, x) as (_, _, inputs):
        inputs.traced[0].numpy()
    assert x.numpy().shape == (3,)


def test_numbers_that_depend_on_data_need_symbols() -> None:
    with begun(nothing, torch.ones(3), dynamic=DynamicSizes()) as (_, _, inputs):
        assert inputs.traced[0].nonzero().shape[1] == 1
        assert current_symbols() is inputs.plan.symbols
        with begun(nothing, torch.ones(3)) as (_, _, inner):
            assert current_symbols() is None
            with pytest.raises(DataDependentError, match="nonzero"):
                inner.traced[0].nonzero()
        assert current_symbols() is inputs.plan.symbols
    assert current_symbols() is None
    with with_symbols(inputs.plan):
        assert current_symbols() is inputs.plan.symbols


@pytest.mark.parametrize("error", [RuntimeError, ValueError, IndexError])
def test_an_error_after_a_change_of_sizes_says_what_may_be_its_reason(error: type[Exception]) -> None:
    def of_torch() -> None:
        scope: dict[str, Any] = {"error": error}
        exec(compile("def fails(): raise error('no such size')", torch.__file__, "exec"), scope)
        scope["fails"]()

    def program(change: bool, fails: Any) -> None:
        with begun(nothing, torch.rand(2, 3)) as (_, _, inputs):
            if change:
                inputs.traced[0].t_()
            fails()

    def of_user() -> None:
        raise error("my own")

    with pytest.raises(MutationError, match="changes the size or strides of a tensor .* says: no such size"):
        program(True, of_torch)
    with pytest.raises(error, match="^no such size"):
        program(False, of_torch)
    with pytest.raises(error, match="^my own"):
        program(True, of_user)
