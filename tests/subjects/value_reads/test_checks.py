"""Where checks of values stand, and what runs before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional

from subclass_aot import aot_compile
from subclass_aot.base.operators import effects_of
from subclass_aot.subjects.value_reads.checks import may_run_on_a_guess
from tests.engine.passes.test_symbol_inputs import symbols_of

aten = torch.ops.aten


def parts_of(function: Callable[..., Any], *calls: tuple[torch.Tensor, ...], **options: Any) -> list[list[str]]:
    """The operators of each graph that a compiler is given."""
    found: list[list[str]] = []

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        found.append([str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
        return fx.Interpreter(graph).run

    compiled = aot_compile(function, fw_compiler=compiler, **options)
    for call in calls:
        torch.testing.assert_close(compiled(*call), function(*call))
    return found


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y.sin() * 2 if y.sum() > 0 else y.cos()


def test_what_cannot_fail_runs_before_the_check_in_one_graph() -> None:
    (operators,) = parts_of(branch, (torch.ones(2),))
    assert [name for name in operators if name in ("aten.exp.default", "aten.gt.Scalar", "aten.sin.default")] == [
        "aten.exp.default", "aten.gt.Scalar", "aten.sin.default",
    ]  # fmt: skip


def choice(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y[index] if index.max() < 2 else y.cos()


def test_the_graph_is_cut_before_what_must_not_run_on_a_guess() -> None:
    first, second = parts_of(choice, (torch.ones(2), torch.tensor([0, 1])))
    assert "aten.lt.Scalar" in first and "aten.index.Tensor" not in first
    assert second == ["aten.index.Tensor"]


def test_what_would_fail_on_another_value_is_not_run() -> None:
    compiled = aot_compile(choice)
    x = torch.ones(2)
    for index in (torch.tensor([0, 1]), torch.tensor([0, 5])):
        torch.testing.assert_close(compiled(x, index), choice(x, index))


def draws(x: torch.Tensor) -> torch.Tensor:
    noise = torch.rand_like(x)
    return noise * 2 if x.sum() > 0 else noise.cos()


@pytest.mark.parametrize("compiler", ["eager", lambda graph, inputs: fx.Interpreter(graph).run])
def test_a_check_that_fails_takes_draws_back(compiler: Any) -> None:
    compiled = aot_compile(draws, fw_compiler=compiler)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        found = []
        for function in (draws, compiled):
            torch.manual_seed(0)
            found += [function(x), torch.get_rng_state()]
        assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


def node(func: Any, *specs: torch.Tensor) -> fx.Node:
    graph = fx.Graph()
    made = graph.call_function(func, tuple(graph.placeholder(f"x{i}") for i in range(len(specs))))
    if specs:
        made.meta["spec"] = specs[0]
    return made


FLOATS, INTEGERS = torch.ones(2), torch.ones(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("func", "like", "may"),
    [
        (aten.add.Tensor, FLOATS, True),
        (aten.div.Tensor, FLOATS, True),
        (aten.remainder.Tensor, INTEGERS, False),  # by zero
        (aten.t.default, FLOATS, True),
        (aten.sum.default, FLOATS, True),
        (aten.index.Tensor, FLOATS, False),  # out of range
        (aten.rand_like.default, FLOATS, False),
        (aten.add_.Tensor, FLOATS, False),
        (aten.nonzero.default, INTEGERS, False),
        (aten.binary_cross_entropy.default, FLOATS, False),  # of what is no probability
        (torch.ops._c10d_functional.wait_tensor.default, FLOATS, False),
        (max, INTEGERS, True),  # of sizes
    ],
    ids=str,
)
def test_what_may_run_before_a_check(func: Any, like: torch.Tensor, may: bool) -> None:
    assert may_run_on_a_guess(node(func, like)) is may


def draws_in_another_way(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """As inductor, a compiler that takes other numbers from the generator than eager mode."""
    random = any(effects_of(n.target).random for n in graph.graph.nodes if n.op == "call_function" and is_operator(n))

    def run(*args: Any) -> Any:
        if random:
            torch.rand(3)
        return fx.Interpreter(graph).run(*args)

    return run


def is_operator(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)


def dropped_layer(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = functional.dropout(x, 0.5)
        if not torch.rand([]) < 0.5:
            x = x.sin()
    return x


def of_any_length(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.rand(4))[: int(torch.randint(1, 4, ()))] * 2


def several_times(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x + torch.rand(4)
        if torch.rand(2).sum() < 1:
            break
    return x


def in_any_order(x: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(2).tolist()
    return x[: order[0] + 1] * (order[1] + 2)


def kept(x: torch.Tensor) -> torch.Tensor:
    noise = torch.bernoulli(torch.full((4,), 0.5))
    return x * noise if noise.any() and torch.multinomial(torch.ones(2), 1) == 0 else x.cos()


def a_number(x: torch.Tensor) -> torch.Tensor:
    n = torch.randint(2, 9, ()).item()
    return x.repeat(n) if n > 4 else x * n


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [dropped_layer, of_any_length, several_times, in_any_order, kept, a_number])
def test_a_draw_that_is_read_is_that_of_eager_mode(function: Any, gradients: bool) -> None:
    compiled = aot_compile(function, fw_compiler=draws_in_another_way)
    for seed in range(6):
        x = torch.randn(4, requires_grad=gradients)
        results = []
        for call in (function, compiled):
            torch.manual_seed(seed)
            results.append(call(x))
        torch.testing.assert_close(*results)
        if gradients:
            torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in results))


def normalized(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    edges = torch.cat([edges[:, edges[0] != edges[1]], torch.arange(x.shape[0]).expand(2, -1)], 1)
    degree = torch.zeros(x.shape[0]).scatter_add(0, edges[1], torch.ones(edges.shape[1])).pow(-0.5)
    weights = degree[edges[0]] * degree[edges[1]]
    return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]] * weights[:, None])


SIZED_BY_DATA: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    normalized,
    lambda x, e: x[torch.cat([e[0][e[0] > 2], torch.arange(3)])].sin(),
    lambda x, e: x[torch.cat([e[0][e[0] > 2], torch.arange(3)])][:-1].cos() * torch.rand(()).mul(0),
    lambda x, e: (y := torch.nn.functional.pad(e[1].nonzero()[:, 0], (1, 2)), x[e[1][y]] * x[y % x.shape[0]].exp())[1],
    lambda x, e: torch.cat([x, x[e[0][e[1] > 1]]]).cumsum(0)[e[0]],
    lambda x, e: x[e[0].repeat(2)[e[0].repeat(2) > 1][1:]].sin(),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", range(len(SIZED_BY_DATA)))
def test_each_part_is_given_the_symbols_of_its_sizes(program: int, dynamic: bool | None) -> None:
    function, parts = SIZED_BY_DATA[program], []

    def compiler(graph: Any, inputs: Any) -> Any:
        used, plain = symbols_of([n.meta["val"] for n in graph.graph.find_nodes(op="placeholder")])
        assert used <= plain
        parts.append(used)
        return graph

    compiled = aot_compile(function, fw_compiler=compiler, dynamic=dynamic)
    for _ in range(2):
        x, edges = torch.randn(10, 3), torch.randint(0, 10, (2, 24))
        ours, eager = (x.clone().requires_grad_() for _ in range(2))
        results = [f(each, edges) for f, each in ((compiled, ours), (function, eager))]
        for result in results:
            result.sum().backward()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(ours.grad, eager.grad)
    assert any(parts)
