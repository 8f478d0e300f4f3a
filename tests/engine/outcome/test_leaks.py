"""No traced tensor leaves a trace."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import _dynamo
from torch.utils.checkpoint import checkpoint

from subclass_aot import Int8Weight, MetaTensor, TwoTensor, aot_compile, trace_joint
from subclass_aot.engine.outcome import leaks
from subclass_aot.errors import TraceError

WHOLE_HEAP = True
"""The library finds functions and holders of this module among all objects."""


class Store:
    saved: Any = None
    table: dict[str, Any] = {}


def in_another_module(x: Any) -> Any:
    leaks.here = x * 2  # type: ignore[attr-defined]
    return x


def in_a_generator(x: Any) -> Any:
    return (x * i for i in (x.cos(),))


def in_a_function(x: Any) -> Any:
    y = x * 2
    return lambda: y


def its_argument_in_another_module(x: Any) -> Any:
    leaks.here = x  # type: ignore[attr-defined]
    return x * 2


def its_argument_in_a_partial(x: Any) -> Any:
    PARTIAL.here = x  # type: ignore[attr-defined]
    return x * 2


PARTIAL = functools.partial(print)


def tensors() -> Any:
    yield torch.ones(3)
    yield torch.ones(3, requires_grad=True)
    yield TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_()


LEAKS: dict[Callable[..., Any], str] = {
    in_another_module: r"in module subclass_aot.engine.outcome.leaks, .here",
    in_a_generator: "in generator, which is returned",
    in_a_function: "in function, which is returned",
    its_argument_in_another_module: r"in module subclass_aot.engine.outcome.leaks, .here",
    its_argument_in_a_partial: "in module tests.engine.outcome.test_leaks, .PARTIAL",
}


@pytest.mark.parametrize("program", LEAKS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("kind", range(3))
def test_who_keeps_a_traced_tensor_is_named(
    program: Callable[..., Any], kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # other tests may have left some
    x = list(tensors())[kind]
    try:
        message = "A traced tensor is still there when the trace is over: " + LEAKS[program]
        with pytest.raises(TraceError, match=message):
            trace_joint(program, x)
    finally:
        Store.saved = None
        Store.table.clear()
        for table in (vars(leaks), vars(PARTIAL)):
            table.pop("here", None)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.factor = x * 2
        return x * ctx.factor

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.factor


def hooked(x: Any) -> Any:
    y, factor = x * 2, x.detach().sin()
    y.register_hook(lambda gradient: gradient * factor)
    return y.exp()


@pytest.mark.parametrize(
    "program",
    [
        Scale.apply,
        hooked,
        lambda x: checkpoint(lambda y: (y.sin() * x).exp(), x, use_reentrant=False),
        lambda x: types.SimpleNamespace(y=x * 2),
    ],
)
@pytest.mark.parametrize("kind", range(1, 3))
def test_what_autograd_keeps_is_no_leak(program: Callable[..., Any], kind: int) -> None:
    trace_joint(program, list(tensors())[kind])


@pytest.mark.parametrize("program", [Scale.apply, hooked])
def test_old_objects_are_looked_through_once(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes as long as the rest of a trace; among what is new, holders are followed in no time."""
    searched = []

    def holders_of(self: leaks.Holders, level: list[Any]) -> list[Any]:
        if gc.get_freeze_count() == 0:
            searched.append(len(level))
        return original(self, level)

    original = leaks.Holders._holders_of
    monkeypatch.setattr(leaks.Holders, "_holders_of", holders_of)
    trace_joint(program, torch.ones(3, requires_grad=True))
    assert len(searched) == 1 and searched[0] < 10


def test_ordinary_programs_cost_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference counts alone tell that nothing is left; a search through all objects takes a tenth of a second."""
    monkeypatch.setattr(leaks, "Holders", lambda *args: pytest.fail("searched"))
    for x in tensors():
        trace_joint(lambda x, w: ((x @ w).sin().exp() * x.t()[0]).sum(), x.expand(3, 3) if x.dim() < 2 else x, x)
        trace_joint(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3)), x)
        trace_joint(lambda x: [x.clone().mul_(2), torch.zeros(3).add_(1) * x], x)
        aot_compile(lambda x: [x * 2, {"a": x.sin()}, x[1:], x.view(-1)])(x)
        trace_joint(lambda x: [y := x.detach().sin(), y.unsqueeze_(0), y.t_() if y.dim() == 2 else y], x)
        base = x.detach().requires_grad_() * 1
        trace_joint(lambda a, b: (a.mul_(2), b * 3)[1], base[1:], base[:1])
    rows = [torch.rand(2, 3), torch.rand(4, 3)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    trace_joint(lambda x: [x.sin() * 2, x.values(), x * x], jagged)


def test_a_class_that_a_function_makes_is_an_object_like_others() -> None:
    """Such a class is a cycle, which the collector has not found yet."""

    def program(x: Any) -> Any:
        class Local:
            kept = x * 2

        return Local.kept.sin()

    assert torch.equal(aot_compile(program)(torch.ones(3)), (torch.ones(3) * 2).sin())

    def new_class() -> Any:
        class Local:
            kept: Any = None

        return Local

    local = new_class()

    def keeping(x: Any) -> Any:
        local.kept = x * 2
        return x

    aot_compile(keeping)(torch.ones(3))
    assert torch.equal(local.kept, torch.full((3,), 2.0))


def test_a_real_wrapper_of_a_class_is_no_leak() -> None:
    Store.saved = TwoTensor(torch.ones(3), torch.ones(3))
    try:
        trace_joint(lambda x: x * Store.saved, torch.ones(3))
    finally:
        Store.saved = None


def test_arithmetic_on_a_tensor_of_a_finished_trace_raises_at_once() -> None:
    with pytest.raises(TraceError, match="is still there when the trace is over"):
        trace_joint(in_another_module, torch.ones(3))
    kept = vars(leaks).pop("here")
    for use in (lambda t: t + 1, lambda t: torch.ones(3) * t, lambda t: torch.cat([torch.ones(3), t]), torch.sum):
        with pytest.raises(TraceError, match="belongs to a trace that is over") as caught:
            use(kept)
        assert f"{__file__}:" in str(caught.value)
    with pytest.raises(TraceError, match="belongs to no running trace|belongs to a trace that is over"):
        trace_joint(lambda x: x + kept, torch.ones(3))
    assert (MetaTensor(torch.ones(3)) + 1).shape == (3,)
    gc.collect()


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.kept = x * 2
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.kept


def test_what_autograd_keeps_is_soon_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step upwards looks at every object of the process; what the search itself makes is no holder."""
    holders: list[str] = []
    known_place = leaks._known_place

    def seen(holder: Any, reachable: dict[int, str]) -> str | None:
        holders.append(type(holder).__name__)
        return known_place(holder, reachable)

    monkeypatch.setattr(leaks, "_known_place", seen)
    x = torch.rand(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(aot_compile(Keeps.apply)(x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x)
    assert holders == ["dict", "KeepsBackward", "MetaTensor"]


def test_no_search_after_torch_compile_refused_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo leaves its way to run frames in place, in which each call holds its arguments once more."""

    def program(w: Int8Weight) -> torch.Tensor:
        view = w[:, :2]
        _dynamo.graph_break()
        return view.mul_(10)

    w = Int8Weight(torch.ones(4, 6, dtype=torch.int8), torch.rand(4, 1))
    try:
        with torch.no_grad(), pytest.raises(Exception, match="is shared with the rest of"):
            torch.compile(program, backend="aot_eager")(w)
        monkeypatch.setattr(leaks, "Holders", lambda *args: pytest.fail("searched"))
        trace_joint(lambda x, w: (x @ w).sin().exp(), torch.rand(3, 3), torch.rand(3, 3, requires_grad=True))
    finally:
        _dynamo.reset()


def test_variables_of_callers_are_not_kept() -> None:
    """To read a running function's variables is to have it keep a copy of them, up to Python 3.12."""

    def call() -> weakref.ref[torch.Tensor]:
        big = torch.ones(3)
        seen = weakref.ref(big)
        aot_compile(Keeps.apply)(torch.rand(3, requires_grad=True))
        del big
        assert seen() is None
        return seen

    call()


def test_what_a_caller_looks_at_itself_stays() -> None:
    variables = locals()
    aot_compile(Keeps.apply)(torch.rand(3, requires_grad=True))
    assert "variables" in variables


def test_a_debugger_finds_all_variables() -> None:
    """Up to Python 3.12 a trace function that is written in Python has them written back after it."""
    done: list[object] = []

    def trace(frame: types.FrameType, event: str, argument: object) -> Any:
        if event == "line" and frame.f_lineno == frame.f_code.co_firstlineno + 3:
            done.append(aot_compile(Keeps.apply)(torch.rand(3, requires_grad=True)))
        return trace if frame.f_code.co_name == "debugged" else None

    def debugged() -> int:
        first = 1
        second = 2
        return first + second

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert debugged() == 3
    finally:
        sys.settrace(before)
    assert done
