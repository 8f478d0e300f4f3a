"""Programs that read and set context variables, compared with eager mode."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa

SCALE: ContextVar[Any] = ContextVar("SCALE", default=2.0)
LAST: ContextVar[Any] = ContextVar("LAST")


class Scaled(nn.Module):
    """A layer that reads its scale from the context, as adapters do."""

    def __init__(self, variable: ContextVar[Any]) -> None:
        super().__init__()
        self.linear, self.variable = nn.Linear(3, 3), variable

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.variable.get()


def reads(x: Any) -> Any:
    return x * SCALE.get()


def reads_with_a_default_of_its_own(x: Any) -> Any:
    return x * LAST.get(4.0)


def sets_a_number(x: Any) -> Any:
    LAST.set(x.shape[0])
    return x + 1


def sets_a_tensor(x: Any) -> Any:
    LAST.set(x * 3)
    return x + 1


def counts(x: Any) -> Any:
    LAST.set(LAST.get(0) + 1)
    return x + LAST.get()


def sets_and_resets(x: Any) -> Any:
    token = SCALE.set(5.0)
    y = x * SCALE.get()
    SCALE.reset(token)
    return y * SCALE.get()


def sets_what_it_was_given(x: Any) -> Any:
    LAST.set(x)
    return x * 2


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (
        reads, reads_with_a_default_of_its_own, sets_a_number, sets_a_tensor, counts, sets_and_resets,
        sets_what_it_was_given,
    )
}  # fmt: skip

UNSET = object()


def told(value: object) -> object:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def ran(function: Callable[[Any], Any], grad: bool) -> list[object]:
    """Results, gradients and values of five calls, between which the context changes."""
    found: list[object] = []
    for scale, last, n in ((UNSET, UNSET, 2), (UNSET, 1, 2), (3.0, 1, 2), (torch.full((2,), 7.0), 2, 2), (3.0, 2, 2)):
        if scale is not UNSET:
            SCALE.set(scale)
        if last is not UNSET:
            LAST.set(last)
        x = torch.arange(1.0, n + 1).requires_grad_(grad)
        y = function(x)
        gradient = torch.autograd.grad(y.sum(), x)[0] if grad else None
        kept = LAST.get(None)
        assert not isinstance(kept, torch.Tensor) or kept is x or type(kept) is torch.Tensor
        found.append([told(y.detach()), told(gradient), told(kept), told(SCALE.get()), kept is x])
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_as_in_eager_mode(name: str, grad: bool) -> None:
    expected = copy_context().run(ran, PROGRAMS[name], grad)
    assert copy_context().run(ran, sa.aot_compile(PROGRAMS[name]), grad) == expected


def test_a_value_that_was_met_compiles_nothing() -> None:
    def run() -> None:
        compiled = sa.aot_compile(reads)
        for scale in (1.0, 2.0, 1.0, 2.0, 1.0):
            SCALE.set(scale)
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), scale))
        assert len(compiled.recompiles) == 1 and "SCALE.get()" in compiled.recompiles[0]

    copy_context().run(run)


def test_a_module_has_the_variable() -> None:
    def run() -> None:
        variable: ContextVar[Any] = ContextVar("of_module", default=1.0)
        model, x = Scaled(variable), torch.rand(2, 3)
        compiled = sa.aot_compile(model)
        for scale in (UNSET, 2.0, torch.tensor(3.0), torch.tensor(4.0)):
            if scale is not UNSET:
                variable.set(scale)
            assert torch.allclose(compiled(x), model(x))

    copy_context().run(run)


def test_two_variables_are_two_though_they_hold_the_same() -> None:
    def run() -> None:
        one, other = ContextVar[Any]("one", default=1.0), ContextVar[Any]("other", default=1.0)
        compiled = sa.aot_compile(lambda variables, x: x * variables[0].get() + variables[1].get())
        compiled([one, other], torch.ones(2))
        other.set(3.0)
        assert compiled([one, other], torch.ones(2)).tolist() == [4.0, 4.0]
        assert compiled([other, one], torch.ones(2)).tolist() == [4.0, 4.0]

    copy_context().run(run)


def test_each_thread_has_values_of_its_own() -> None:
    compiled, found = sa.aot_compile(reads), []

    def work(scale: float) -> None:
        SCALE.set(scale)
        found.append((scale, compiled(torch.ones(1)).item()))

    for scale in (3.0, 4.0):
        thread = threading.Thread(target=work, args=(scale,))
        thread.start()
        thread.join()
    assert found == [(3.0, 3.0), (4.0, 4.0)] and compiled(torch.ones(1)).item() == 2.0


def test_a_trace_sets_nothing_and_neither_does_one_that_fails() -> None:
    def fails(x: Any) -> Any:
        LAST.set(x * 2)
        raise ZeroDivisionError

    def run() -> None:
        with pytest.raises(ZeroDivisionError):
            sa.aot_compile(fails)(torch.ones(2))
        found = LAST.get(None)  # what eager mode leaves there, where the error is raised by the function itself
        assert found is None or type(found) is torch.Tensor
        sa.trace_joint(sets_a_tensor, torch.ones(2))
        assert found is None or LAST.get(None) is found

    copy_context().run(run)


@pytest.mark.filterwarnings("ignore:resets could not be traced")
def test_a_token_of_the_caller_is_used_by_the_function_itself() -> None:
    """It is good for one use, in the context that it is of, and so for no second call."""

    def run() -> None:
        variable: ContextVar[Any] = ContextVar("variable")
        tokens = [variable.set(1), variable.set(2)]

        def resets(x: Any) -> Any:
            variable.reset(tokens.pop())
            return x * 2

        compiled = sa.aot_compile(resets)
        for expected in (1, "none"):
            assert compiled(torch.ones(2)).tolist() == [2.0, 2.0] and variable.get("none") == expected
        assert tokens == []

    copy_context().run(run)
