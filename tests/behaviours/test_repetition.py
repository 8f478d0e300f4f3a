"""Calls and backwards that are repeated, modes that change, random numbers."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

from subclass_aot import aot_compile, trace_joint
from subclass_aot.testing import difference


def program(x: Any) -> Any:
    return (x * x).sin()


@pytest.mark.inductor("two")
def test_two_backwards(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        first = torch.autograd.grad(out.sum(), args[0], retain_graph=True)
        second = torch.autograd.grad((out * 2).sum(), args[0])
        out_again = out.detach()
        return first, second, out_again

    agree(program, lambda: (kind(3, 4, grad=True),), later)


def test_second_backward_without_retain_graph(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        torch.autograd.grad(out.sum(), args[0])
        torch.autograd.grad(out.sum(), args[0])

    agree(program, lambda: (kind(3, 4, grad=True),), later)  # eager refuses, and so must this


def test_one_function_after_another(follow: Any, kind: Any) -> None:
    """Results go in again; gradients accumulate; backward is asked for some inputs only."""

    def use(function: Any, i: int) -> Any:
        x = kind(3, 4, grad=True)
        out = function(function(x))
        out.sum().backward(retain_graph=True)
        torch.autograd.backward([out.sum(), (function(x) * 2).sum()], inputs=[x])
        return out, x.grad

    follow(program, use)


@pytest.mark.inductor("two")
def test_interleaved_calls(kind: Any, build: Any) -> None:
    x, y = (kind(3, 4, grad=True, seed=seed) for seed in (1, 2))
    found = []
    for function in (program, build(program)):
        first, second = function(x), function(y)
        (gradient_y,) = torch.autograd.grad(second.sum(), y)
        (gradient_x,) = torch.autograd.grad(first.sum(), x)
        found.append((gradient_x, gradient_y))
    for expected, got in zip(*found, strict=True):
        assert not difference(expected, got, strides=False)


@pytest.mark.inductor("two")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_with_and_without_gradients(kind: Any, mode: Any, build: Any) -> None:
    compiled = build(program)
    for _ in range(2):
        x = kind(3, 4, grad=True)
        with mode():
            expected, got = program(x), compiled(x)
        assert not difference(expected, got) and not got.requires_grad
        assert got.is_inference() == expected.is_inference()
        assert not difference(program(x), compiled(x))
        assert not difference(*(torch.autograd.grad(f(x).sum(), x)[0] for f in (program, compiled)), strides=False)
    assert len(compiled.recompiles) == 1


def test_inference_tensors(kind: Any) -> None:
    compiled = aot_compile(lambda x: x.mul_(2))
    with torch.inference_mode():
        x, y = kind(3, 4), kind(3, 4)
        assert compiled(x) is x
        assert not difference(y.mul_(2), x)


@pytest.mark.inductor("two")
def test_autocast_on_and_off(kind: Any, build: Any) -> None:
    compiled = build(lambda x, y: x @ y.t())
    x, y = kind(3, 4), kind(5, 4)
    for enabled in (True, False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            expected, got = x @ y.t(), compiled(x, y)
        assert not difference(expected, got)
    assert len(compiled.recompiles) == 1


def test_activation_checkpointing_inside(agree: Any, kind: Any) -> None:
    def inside(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(lambda y: (y.sin() * y).exp(), x, use_reentrant=False)

    agree(inside, lambda: (kind(3, 4, grad=True),), lambda args, out: torch.autograd.grad(out.sum(), args[0]))


def test_calls_from_threads(kind: Any) -> None:
    compiled = aot_compile(program)
    inputs = [kind(3 + i % 2, 4, grad=True, seed=i) for i in range(8)]

    def call(x: Any) -> Any:
        return torch.autograd.grad(compiled(x).sum(), x)[0]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, inputs))
    for x, got in zip(inputs, found, strict=True):
        assert not difference(torch.autograd.grad(program(x).sum(), x)[0], got, strides=False)


@pytest.mark.inductor("two")
def test_threads_that_meet_at_the_first_call(kind: Any, build: Any) -> None:
    """One compiles, the others wait for it; then all go backward."""
    compiled = build(program)
    together = threading.Barrier(6)
    inputs = [kind(3, 4, grad=True, seed=i) for i in range(6)]

    def call(x: Any) -> Any:
        together.wait()
        return torch.autograd.grad(compiled(x).sum(), x)[0]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(call, inputs))
    for x, got in zip(inputs, found, strict=True):
        assert not difference(torch.autograd.grad(program(x).sum(), x)[0], got, strides=False)
    assert not compiled.recompiles


def test_thread_that_calls_a_module_while_another_traces_it() -> None:
    """While it is traced, the module has other parameters for that thread alone; a call that fits goes on."""
    tracing, proceed = threading.Event(), threading.Event()

    class Slow(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            if x.shape[0] == 2:
                tracing.set()
                proceed.wait(20)
            return super().forward(x)

    module = Slow(4, 5)
    x, y = torch.rand(3, 4), torch.rand(2, 4)
    compiled = aot_compile(module)
    expected = compiled(x)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        traced = pool.submit(compiled, y)
        assert tracing.wait(20)
        assert pool.submit(compiled, x).result(20).equal(expected) and not traced.done()
        proceed.set()
        assert traced.result(20).shape == (2, 5)
    assert len(compiled.recompiles) == 1


def test_a_trace_draws_nothing(kind: Any) -> None:
    state = torch.get_rng_state()
    trace_joint(lambda x: torch.nn.functional.dropout(x) + torch.rand(3, 4), kind(3, 4, grad=True))
    assert torch.get_rng_state().equal(state)


@pytest.mark.inductor("two")
def test_random_operators_draw_as_eager_does(kind: Any, build: Any) -> None:
    """Inductor has a generator of its own, and an option to use that of eager."""

    def random(x: Any) -> Any:
        unused = torch.rand_like(x)
        del unused
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x), torch.randn(3)

    def run(function: Any) -> Any:
        torch.manual_seed(5)
        x = kind(3, 4, grad=True)
        out, dense = function(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        return out, dense, gradient, torch.rand(1)  # whatever is drawn next is the same, too

    compiled = build(random)
    with inductor_config.patch(fallback_random=True):
        run(compiled)
        for expected, got in zip(run(random), run(compiled), strict=True):
            assert not difference(expected, got, strides=False)
