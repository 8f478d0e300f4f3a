"""Second derivatives that were asked for: how they are got, and what they keep."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile


def cube(x: Any) -> Any:
    return x**3


def pair(requires_grad: bool = True) -> Any:
    return TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_(requires_grad)


def counting() -> tuple[list[int], Any]:
    compiled: list[int] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        compiled.append(len(inputs))
        return graph.forward

    return compiled, compiler


def test_against_finite_differences() -> None:
    def program(x: Any, y: Any) -> Any:
        return (x @ y).tanh(), x.exp().sum(1)

    inputs = [torch.rand(2, 3, dtype=torch.float64, requires_grad=True), torch.rand(3, 2, dtype=torch.float64)]
    compiled = aot_compile(program, double_backward=True)
    assert torch.autograd.gradgradcheck(compiled, inputs, [torch.rand(2, 2), torch.rand(2)])


def test_nothing_more_is_compiled_until_it_is_needed() -> None:
    graphs, compiler = counting()
    compiled = aot_compile(cube, fw_compiler=compiler, double_backward=True)
    for _ in range(2):
        compiled(pair()).sum().backward()
    assert len(graphs) == 2
    for _ in range(3):
        x = pair()
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        gradient.sum().backward()
    assert len(graphs) == 4


def test_graph_is_kept_where_the_caller_keeps_it() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    out = aot_compile(cube, double_backward=True)(x)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        assert torch.autograd.grad(gradient, x)[0].item() == 12
    assert torch.autograd.grad(out, x)[0].item() == 12
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out, x, create_graph=True)


def test_inputs_are_freed_with_the_graph() -> None:
    """A middle of a larger program, kept for second derivatives, goes when backward has run; no cycle is made."""
    compiled = aot_compile(lambda x: x * 2, double_backward=True)
    gc.disable()
    try:
        for create_graph in (False, True):
            x = pair()
            middle = x.sin()
            kept = weakref.ref(middle)
            out = compiled(middle)
            del middle
            assert kept() is not None
            torch.autograd.grad(out.sum(), x, create_graph=create_graph)
            if create_graph:
                del out
            assert kept() is None
    finally:
        gc.enable()


def test_autocast_of_the_call() -> None:
    weight = torch.rand(4, 4, requires_grad=True)
    found = []

    def program(weight: Any) -> Any:
        return (weight @ weight).float().sin()

    for function in (program, aot_compile(program, double_backward=True)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = function(weight)
        (gradient,) = torch.autograd.grad(out.sum(), weight, create_graph=True)
        found += [gradient.detach(), torch.autograd.grad(gradient.sum(), weight)[0]]
    assert found[0].equal(found[2]) and found[1].equal(found[3])


def test_a_wrapper_that_holds_python_values_among_arguments() -> None:
    compiled = aot_compile(lambda xs, scale: xs["a"] ** scale, double_backward=True)
    x = pair()
    (gradient,) = torch.autograd.grad(compiled({"a": x}, scale=3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second.a, 6 * x.detach().a)
