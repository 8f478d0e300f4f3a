"""Graphs of programs that write: nothing in them writes, and what they compute is what eager leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot import TwoTensor, aot_compile, trace_joint
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.trace import Attempt, JointTrace, trace_arguments
from subclass_aot.testing import difference

aten: Any = torch.ops.aten


def operators(trace: JointTrace) -> list[Any]:
    return [n.target for n in trace.graph_module.graph.nodes if n.op == "call_function"]


def writes(trace: JointTrace) -> list[Any]:
    return [f for f in operators(trace) if hasattr(f, "_schema") and effects_of(f).writes]


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "whole": lambda x, y: x.mul_(y).sum(),
    "twice": lambda x, y: x.add_(1) * x.mul_(2),
    "row": lambda x, y: x[1].copy_(y[0]) + x,
    "column through views": lambda x, y: (x.t()[1:].view(-1, 3).sin_(), x * y),
    "strided": lambda x, y: (x[:, ::2].zero_(), x.clone()),
    "diagonal": lambda x, y: (x.diagonal().fill_(7), x @ y),
    "mask": lambda x, y: x.masked_fill_(y > 0, 0.5) - y,
    "index": lambda x, y: (x.index_put_((torch.tensor([0, 2]),), y[:2], accumulate=True), y + x),
    "item": lambda x, y: (x.__setitem__((0, slice(1, None)), 3.0), x.sum(0)),
    "scatter": lambda x, y: (x.scatter_(1, torch.zeros(3, 1, dtype=torch.int64), 1.0), x.exp()),
    "both": lambda x, y: (x.add_(y), y.sub_(x), x * y),
    "swap": lambda x, y: (t := x.clone(), x.copy_(y), y.copy_(t), x - y)[-1],
    "of its own": lambda x, y: torch.zeros(3, 3).add_(x).t().mul_(y),
    "out": lambda x, y: torch.add(x, y, out=torch.empty(3, 3)),
    "out of an input": lambda x, y: (torch.mul(x, y, out=x), x.sum())[1],
    "look of its own": lambda x, y: (x + y).t_().unsqueeze_(0).squeeze_(0) @ x,
    "resized": lambda x, y: (x + y).resize_(9),
    "foreach": lambda x, y: (torch._foreach_add_([x, y], 1.0), x * y),
    "lists": lambda x, y: [part.neg_() for part in x.split(1)] + [x * 1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_graph_without_writes_computes_what_eager_leaves_behind(name: str) -> None:
    program = PROGRAMS[name]
    before = [torch.randn(3, 3), torch.randn(3, 3)]
    trace = trace_joint(program, *[x.clone() for x in before])
    assert not writes(trace)
    eager = [x.clone() for x in before]
    result = program(*eager)
    given = [x.clone() for x in before]
    outputs = trace.graph_module(*given)
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True)), "the graph itself writes nowhere"
    signature = trace.signature
    for slot, value in zip(signature.mutations.in_graph, outputs, strict=False):
        assert torch.equal(value, eager[slot])
    assert set(signature.mutations.in_graph) >= {i for i in (0, 1) if not torch.equal(before[i], eager[i])}
    if isinstance(result, torch.Tensor) and len(outputs) > len(signature.mutations.in_graph):
        assert not difference(result, outputs[len(signature.mutations.in_graph)], strides=False)


def test_leaves_of_wrappers_are_written_one_by_one() -> None:
    def program(x: TwoTensor) -> torch.Tensor:
        x.b[0].mul_(3)
        return x.a + x.b

    x = TwoTensor(torch.ones(2, 2), torch.ones(2, 2))
    trace = trace_joint(program, x)
    assert not writes(trace) and trace.signature.mutations.in_graph == (1,)
    new_b, total = trace.graph_module(x.a, x.b)
    assert new_b.tolist() == [[3, 3], [1, 1]] and total.tolist() == [[4, 4], [2, 2]]
    assert str(descriptor_of(trace.graph_module.graph.output_node())[0]) == "new value of args[0].b"


def test_gradients_through_writes() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z[0].mul_(y[1])
        z.t()[1].add_(y[0].exp())
        return z.sin()

    x, y = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    trace, tangent = trace_joint(program, x, y), torch.randn(3, 3, dtype=torch.float64)
    assert not writes(trace)
    expected = program(x, y)
    gradients = torch.autograd.grad(expected, [x, y], tangent)
    for a, b in zip(trace.graph_module(x.detach(), y.detach(), tangent), (expected, *gradients), strict=True):
        torch.testing.assert_close(a, b)


def test_buffers_of_modules() -> None:
    norm, x = torch.nn.BatchNorm1d(3), torch.randn(5, 3)
    trace = trace_joint(norm, x)
    assert not writes(trace)
    leaves = [v.detach().clone() for v in Arguments.of(norm, (x,), {}).parameters_first().values]
    outputs = trace.graph_module(*leaves, *[torch.ones(5, 3)] * trace.signature.needs_backward)
    assert norm.num_batches_tracked == 0
    norm(x)
    meanings = [str(desc) for desc in descriptor_of(trace.graph_module.graph.output_node())]
    new = {m.removeprefix("new value of self."): o for m, o in zip(meanings, outputs, strict=True)}
    for name, buffer in norm.named_buffers():
        torch.testing.assert_close(new[name], buffer)


def test_decompositions_are_done_while_tracing() -> None:
    gelu, backward = torch.nn.functional.gelu, aten.gelu_backward.default
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    call = Attempt(Arguments.of(gelu, (x,), {}))
    table = {
        aten.gelu.default: lambda x, approximate="none": x * 0.5 * (1 + (x * 0.5**0.5).erf()),
        **torch._decomp.get_decompositions([backward]),
    }
    with_table, without = trace_arguments(gelu, call, table), trace_arguments(gelu, call)
    assert {aten.gelu.default, backward} == set(operators(without))
    assert not {aten.gelu.default, backward} & set(operators(with_table))
    leaves = x.detach(), torch.randn(3, dtype=torch.float64)
    for a, b in zip(with_table.graph_module(*leaves), without.graph_module(*leaves), strict=True):
        torch.testing.assert_close(a, b)


def test_decompositions_reach_the_operators_of_wrappers() -> None:
    x = TwoTensor(torch.randn(3), torch.randn(3))
    call = Attempt(Arguments.of(lambda x: x.tanh(), (x,), {}))
    trace = trace_arguments(lambda x: x.tanh(), call, {aten.tanh.default: lambda x: 2 * (2 * x).sigmoid() - 1})
    assert aten.sigmoid.default in operators(trace) and aten.tanh.default not in operators(trace)
    for a, b in zip(trace.graph_module(x.a, x.b), (x.a.tanh(), x.b.tanh()), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_loss_with_a_kernel_stays_one_operator(reduction: str, dynamic: bool) -> None:
    """Its derivative writes in place, and torch's transforms decompose it where something does."""
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def loss(x: Any, y: Any) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction=reduction)

    x, y = torch.randn(3, 4).t().requires_grad_(), torch.rand(4, 3)
    found, expected = aot_compile(loss, fw_compiler=keep, dynamic=dynamic)(x, y), loss(x, y)
    assert found.equal(expected) and found.stride() == expected.stride()
    gradients = [torch.autograd.grad(result.sum(), x)[0] for result in (found, expected)]
    assert gradients[0].equal(gradients[1])
    names = [str(n.target) for n in graphs[0].graph.nodes if n.op == "call_function"]
    assert [n for n in names if "size" not in n] == ["aten.binary_cross_entropy_with_logits.default"]


def _rows(x: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Joins the rows of `found` that belong to each row of `x`, whose number is read."""
    parts = [found[found[:, 0] == i] for i in range(x.shape[0])]
    most = torch.ones(x.shape[0], 4).long().sum(1).max()
    return torch.cat([t + 1 if most - t.size(0) <= 0 else t for t in parts])


KNOWN_LATER: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": lambda x: (_rows(x, torch.ones(x.shape[0], 4).long().nonzero()), x.clone().add_(1)),
    "where": lambda x: (_rows(x, torch.stack(torch.where(torch.ones(x.shape[0], 4) > 0), 1)), x.clone().add_(1)),
    "argwhere": lambda x: (_rows(x, torch.argwhere(torch.ones(x.shape[0], 2))), x.clone().mul_(2)),
    "unique": lambda x: (_rows(x, torch.arange(x.shape[0]).unique().view(-1, 1)), x.clone().neg_()),
    "a mask": lambda x: (_rows(x, torch.arange(6).view(-1, 1)[torch.ones(6) > 0]), x.clone().add_(1)),
    "written by rows": lambda x: (_rows(x, torch.ones(x.shape[0], 4).nonzero()), x.clone()[1:].zero_()),
}


@pytest.mark.every_case
@pytest.mark.filterwarnings("error:.*could not be traced")
@pytest.mark.parametrize("name", KNOWN_LATER)
def test_sizes_by_data_stay_symbols_if_their_data_is_known_later(name: str) -> None:
    program = KNOWN_LATER[name]
    compiled = aot_compile(program)
    for rows in (2, 3, 4):
        x = torch.rand(rows, 3)
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
