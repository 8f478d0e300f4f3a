"""Backward is compiled when a gradient is first asked for, as it would have been with forward."""

from __future__ import annotations

import copy
import threading
import time
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import difference


def program(x: Any) -> Any:
    return (x * x).sin()


class Counting:
    """A compiler that counts, and notes what it is called under."""

    def __init__(self, look: Any = lambda: None) -> None:
        self.seen: list[Any] = []
        self.look = look

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.seen.append(self.look())
        return graph.forward


@pytest.mark.parametrize("lazy", [True, False])
def test_it_is_compiled_once_and_when_it_is_asked_for(lazy: bool) -> None:
    backward = Counting()
    compiled = aot_compile(program, bw_compiler=backward, lazy_backward=lazy)
    x = TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_()
    for _ in range(3):
        compiled(x)
        assert len(backward.seen) == (not lazy)
    for _ in range(2):
        (expected,) = torch.autograd.grad(program(x).sum(), x)
        (got,) = torch.autograd.grad(compiled(x).sum(), x)
        assert len(backward.seen) == 1 and not difference(expected, got)


def test_with_symbolic_sizes_it_is_compiled_at_the_call() -> None:
    """A compiler that fails with symbols is given numbers, which has to be known before forward runs."""

    def only_numbers(graph: Any, inputs: Any) -> Any:
        if any(isinstance(n, torch.SymInt) for x in inputs for n in getattr(x, "shape", (x,))):
            raise NotImplementedError("sizes must be numbers")
        return graph.forward

    compiled = aot_compile(program, bw_compiler=only_numbers, dynamic=True)
    for n in (3, 4):
        x = torch.rand(n, requires_grad=True)
        compiled(x).sum().backward()
        assert not difference(2 * x.detach() * (x.detach() ** 2).cos(), x.grad)
    assert "its sizes stay numbers" in compiled.explain()


def test_what_is_said_of_it_is_as_before() -> None:
    compiled = aot_compile(program)
    out = compiled(torch.rand(3, requires_grad=True))
    report, source = compiled.explain(), compiled.source
    assert "backward graph: 5 operators" in report and "def backward(ctx" in source
    out.sum().backward()
    assert (compiled.explain(), compiled.source) == (report, source)


def test_errors_of_the_compiler_name_the_function_and_the_call() -> None:
    failures = [ZeroDivisionError("on purpose")]

    def compiler(graph: Any, inputs: Any) -> Any:
        if failures:
            raise failures.pop()
        return graph.forward

    compiled, x = aot_compile(program, bw_compiler=compiler), torch.rand(3, requires_grad=True)
    out = compiled(x)  # the call
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        out.sum().backward(retain_graph=True)
    (note,) = caught.value.__notes__
    assert "the backward graph of program was compiled" in note and "lazy_backward=False" in note
    assert f"{__file__}:" in note and "out = compiled(x)  # the call" in note
    out.sum().backward()  # the next attempt compiles again
    assert not difference(torch.autograd.grad(program(x).sum(), x)[0], x.grad)


def modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        torch.empty(0).device,
        torch.is_autocast_enabled("cpu"),
    )


@contextmanager
def default_dtype() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic() -> Any:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]


MODES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "default dtype": default_dtype,
    "deterministic": deterministic,
    "default device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_the_modes_of_backward_are_not_those_of_its_compiler(mode: Any) -> None:
    forward, backward = Counting(modes), Counting(modes)
    x = torch.rand(3, requires_grad=True)
    out = aot_compile(program, fw_compiler=forward, bw_compiler=backward)(x)
    tangent = torch.ones(3)
    with mode():
        before = modes()
        (got,) = torch.autograd.grad(out, x, tangent)
        assert modes() == before
    assert backward.seen == forward.seen
    assert not difference(torch.autograd.grad(program(x), x, tangent)[0], got)


@pytest.mark.parametrize("mode", [default_dtype, deterministic, MODES["default device"]])
def test_the_modes_of_the_call_are_those_of_the_compiler_of_backward(mode: Any) -> None:
    forward, backward = Counting(modes), Counting(modes)
    x = torch.rand(3, requires_grad=True)
    with mode():
        out = aot_compile(program, fw_compiler=forward, bw_compiler=backward)(x)
    torch.autograd.grad(out, x, torch.ones(3))
    assert backward.seen == forward.seen != [modes()]


@pytest.mark.parametrize("lazy", [True, False])
def test_compilers_run_without_autocast(lazy: bool) -> None:
    """What it casts was cast when the graph was recorded; cast again, shapes are inferred that the graph has not."""
    forward, backward = Counting(modes), Counting(modes)
    layer, x = nn.Linear(3, 3), torch.rand(2, 3)
    compiled = aot_compile(copy.deepcopy(layer), fw_compiler=forward, bw_compiler=backward, lazy_backward=lazy)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, got = layer(x), compiled(x)
        assert not difference(expected.detach(), got.detach())
        expected.sum().backward()
        got.sum().backward()
    assert [seen[-1] for seen in (*forward.seen, *backward.seen)] == [False, False]
    assert not difference(layer.weight.grad, compiled.fn.weight.grad)


def test_two_threads_compile_it_once() -> None:
    def slow(graph: Any, inputs: Any) -> Any:
        backward.append(graph)
        time.sleep(0.2)
        return graph.forward

    backward: list[Any] = []
    compiled = aot_compile(program, bw_compiler=slow)
    inputs = [torch.rand(3, requires_grad=True) for _ in range(4)]
    outs = [compiled(x) for x in inputs]
    threads = [threading.Thread(target=lambda o=o: o.sum().backward()) for o in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(backward) == 1
    for x in inputs:
        assert not difference(torch.autograd.grad(program(x).sum(), x)[0], x.grad)


def test_gradients_of_another_kind_come_first() -> None:
    """The backward for these is compiled by itself; the expected one when a gradient of its kind arrives."""
    backward = Counting()
    compiled, x = aot_compile(program, bw_compiler=backward), torch.rand(3, requires_grad=True)
    out, pair = compiled(x), TwoTensor(torch.rand(3), torch.rand(3))
    for tangent, count in ((pair, 1), (torch.rand(3), 2), (pair, 2), (torch.rand(3), 2)):
        (expected,) = torch.autograd.grad(program(x), x, tangent)
        (got,) = torch.autograd.grad(out, x, tangent, retain_graph=True)
        assert not difference(expected, got) and len(backward.seen) == count


def test_second_derivatives_and_copies() -> None:
    backward = Counting()
    compiled = aot_compile(program, bw_compiler=backward, double_backward=True, lazy_backward=False)
    twin, x = copy.deepcopy(compiled), torch.rand(3, requires_grad=True)
    (first,) = torch.autograd.grad(twin(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    (first_of_eager,) = torch.autograd.grad(program(x).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(first_of_eager.sum(), x)
    assert not difference(expected, second)
    lazy = aot_compile(program, double_backward=True)
    (first,) = torch.autograd.grad(lazy(x).sum(), x, create_graph=True)
    assert not difference(expected, torch.autograd.grad(first.sum(), x)[0])
