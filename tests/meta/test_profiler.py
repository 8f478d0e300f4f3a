"""A profiler is one listener: this file has one, and nothing else knows of it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import optree
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import subclass_aot as sa
from subclass_aot import MetaTensor, TwoTensor, trace_joint
from subclass_aot.meta import Listener, Operation


class FlopCounter(Listener):
    """Counts operators, and floating-point operations by torch's own formulas."""

    def __init__(self) -> None:
        self.operators: collections.Counter[Any] = collections.Counter()
        self.flops: collections.Counter[Any] = collections.Counter()

    def on_operator(self, operation: Operation) -> None:
        packet = operation.func.overloadpacket
        self.operators[packet] += 1
        if packet in flop_registry:
            self.flops[packet] += operation.flops


def by_torch(run: Callable[..., Any], *args: Any) -> dict[Any, int]:
    with FlopCounterMode(display=False) as counter:
        run(*args)
    return dict(counter.get_flop_counts().get("Global", {}))


def trained(program: Callable[..., Any], *args: Any) -> None:
    torch.autograd.grad(program(*args).sum(), [x for x in optree.tree_leaves(args) if x.requires_grad])


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT).softmax(-1) @ v


def written(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    rows = torch.zeros(2, 4)
    rows[0].addmv_(weight, x[0])
    return rows @ weight


def grad(*size: int) -> torch.Tensor:
    return torch.randn(*size, requires_grad=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "matmul": (torch.matmul, [grad(3, 4), grad(4, 5)]),
    "linear": (nn.functional.linear, [grad(2, 7, 3), grad(4, 3), grad(4)]),
    "batched": (attention, [grad(2, 5, 4), grad(2, 6, 4), grad(2, 6, 3)]),
    "convolution": (nn.functional.conv2d, [grad(2, 3, 8, 8), grad(4, 3, 3, 3)]),
    "writes": (written, [grad(2, 4), grad(4, 4)]),
    "no product": (torch.sin, [grad(3)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trace_is_counted_as_torch_counts_the_program(name: str) -> None:
    program, args = PROGRAMS[name]
    with FlopCounter() as counter:
        trace_joint(program, *args)
    assert counter.operators and counter.flops == by_torch(trained, program, *args)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_without_data_is_counted_as_torch_counts_the_program(name: str) -> None:
    program, args = PROGRAMS[name]
    with sa.meta(), FlopCounter() as counter:
        trained(program, *[MetaTensor.like(x) for x in args])
    assert counter.operators and counter.flops == by_torch(trained, program, *args)


def test_a_module_of_any_size_is_counted_without_data() -> None:
    with sa.meta():
        layer, x = nn.Linear(10**6, 10**6), torch.ones(10**6, 10**6)
        with FlopCounter() as counter:
            layer(x)
    assert counter.flops == {torch.ops.aten.addmm: 2 * 10**18}
    assert counter.operators == {torch.ops.aten.t: 1, torch.ops.aten.addmm: 1}


def test_a_run_outside_of_meta_is_counted() -> None:
    with FlopCounter() as counter:
        (MetaTensor.like(torch.ones(3, 4)) @ MetaTensor.like(torch.ones(4, 5))).sin_()
    aten: Any = torch.ops.aten
    assert counter.operators == {aten.mm: 1, aten.sin_: 1} and counter.flops == {aten.mm: 2 * 3 * 4 * 5}


def test_operators_of_wrappers_are_counted_where_they_reach_leaves() -> None:
    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    with FlopCounter() as counter:
        trace_joint(torch.mm, x, torch.randn(4, 5))
    assert counter.operators == {torch.ops.aten.mm: 2} and counter.flops == {torch.ops.aten.mm: 2 * 2 * 3 * 4 * 5}


def test_a_write_is_counted_once_although_the_graph_is_made_twice() -> None:
    with FlopCounter() as counter:
        trace_joint(lambda x: x.mul_(2), torch.ones(3))
    assert counter.operators == {torch.ops.aten.mul_: 1}


def test_compiled_calls_are_counted_while_they_are_traced() -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    compiled = sa.aot_compile(torch.matmul)
    with FlopCounter() as first:
        compiled(x, y)
    with FlopCounter() as second:
        compiled(x, y)
    assert first.flops == by_torch(torch.matmul, x, y) and not second.operators


def test_a_listener_hears_until_its_block_ends_and_others_go_on() -> None:
    inner, outer = FlopCounter(), FlopCounter()
    with sa.meta(), outer:
        x = torch.ones(3)
        with pytest.raises(ZeroDivisionError), inner:
            x.sin()
            raise ZeroDivisionError
        x.cos()
    torch.ones(3).exp()
    aten: Any = torch.ops.aten
    assert inner.operators == {aten.sin: 1} and outer.operators == {aten.ones: 1, aten.sin: 1, aten.cos: 1}
