"""Forward keeps what backward reads, and each runs once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, jacrev, vjp, vmap

import subclass_aot as sa
from tests.transforms.test_calls import MANY, W, X, loss, same

Function = Callable[..., Any]


class Runs:
    """A compiler that notes which graphs run."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Function:
        def run(*args: Any) -> Any:
            self.graphs.append(graph)
            return graph(*args)

        return run

    def count(self, target: Any) -> int:
        """How often an operator ran."""
        return sum(len(graph.graph.find_nodes(op="call_function", target=target)) for graph in self.graphs)


SINE = torch.ops.aten.sin.default
ONCE: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: grad(f)(W, X),
    "vmap of grad": lambda f: vmap(grad(f), (None, 0))(W, MANY),
    "vmap of vmap of grad": lambda f: vmap(vmap(grad(f), (None, 0)), (0, None))(torch.stack([W, 2 * W]), MANY),
    "grad of vmap": lambda f: grad(lambda w: vmap(f, (None, 0))(w, MANY).sum())(W),
    "jacrev": lambda f: jacrev(f)(W, X),
    "vmap of jacrev": lambda f: vmap(jacrev(f, 1), (None, 0))(W, MANY),
    "vjp, gone back twice": lambda f: (lambda pull: pull(torch.ones(())) + pull(torch.zeros(())))(vjp(f, W, X)[1]),
    "autograd around vmap": lambda f: (
        lambda w: torch.autograd.grad(vmap(f, (None, 0))(w, MANY).sum(), w)
    )(W.clone().requires_grad_()),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_forward_runs_once(name: str) -> None:
    runs = Runs()
    compiled = sa.aot_compile(loss, fw_compiler=runs)
    for _ in range(2):
        runs.graphs.clear()
        same(ONCE[name](loss), ONCE[name](compiled))
        assert runs.count(SINE) == 1
        assert len(runs.graphs) == (3 if "twice" in name else 2)


def test_autocast_at_the_call() -> None:
    """A backward within it is cast, whatever forward was."""

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return (x @ W).sin().sum()

    compiled = sa.aot_compile(f)
    with torch.autocast("cpu", torch.bfloat16):
        same(vmap(grad(f))(MANY), vmap(grad(compiled))(MANY))
        same(grad(f)(X), grad(compiled)(X))


def test_sizes_that_change() -> None:
    compiled = sa.aot_compile(loss)
    for n in (5, 4, 3, 2, 1, 5):
        same(grad(loss)(W, MANY[0, :1].expand(n, 4)), grad(compiled)(W, MANY[0, :1].expand(n, 4)))
        same(vmap(grad(loss), (None, 0))(W, MANY[:n]), vmap(grad(compiled), (None, 0))(W, MANY[:n]))
        same(*(grad(lambda w, f=f, n=n: vmap(f, (None, 0))(w, MANY[:n]).sum())(W) for f in (loss, compiled)))


def test_nothing_is_held_when_the_call_is_over() -> None:
    kept: list[Any] = []

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Function:
        def run(*args: torch.Tensor) -> Any:
            results = graph(*args)
            kept.extend(weakref.ref(x) for x in results)
            return results

        return run

    compiled = sa.aot_compile(lambda x: (x.sin() * 2).exp(), fw_compiler=compiler)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            grad(lambda x: compiled(x).sum())(X)
            x = MANY.clone().requires_grad_()
            vmap(compiled)(x).sum().backward()
        del x
        assert kept and not [ref for ref in kept if ref() is not None]
    finally:
        gc.enable()


def test_a_backward_that_cannot_be_compiled_computes_forward_again() -> None:
    def compiler(graph: Any, inputs: Any) -> Function:
        if graph.graph.find_nodes(op="call_function", target=torch.ops.aten.cos.default) and not graph.graph.find_nodes(
            op="call_function", target=SINE
        ):
            raise RuntimeError("not today")
        return lambda *args: graph(*args)

    compiled = sa.aot_compile(lambda x: x.sin().sum(), fw_compiler=compiler)
    with pytest.warns(UserWarning, match=r"(?s)could not be compiled.*not today"):
        same(X.cos(), grad(compiled)(X))
