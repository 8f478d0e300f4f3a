"""Collectives in a graph: which name the group, return what they give and are waited for. See `tests/distributed`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from functorch.compile import min_cut_rematerialization_partition
from torch.distributed import _functional_collectives as functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from subclass_aot import aot_compile
from subclass_aot.errors import TraceError

# Newer torches have other names for some, which older ones do not know.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated. Please use:FutureWarning")


@pytest.fixture(autouse=True)
def _two_ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def graph_of(function: Any, *tensors: torch.Tensor) -> list[str]:
    """The operators of the graph, in their order."""
    found: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
        found.extend(str(node.target).removesuffix(".default") for node in nodes)
        return torch.fx.Interpreter(graph).run

    aot_compile(function, fw_compiler=keep)(*tensors)
    return found


def all_gather(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x), torch.empty_like(x)]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def all_gather_into(x: torch.Tensor) -> torch.Tensor:
    dist.all_gather_into_tensor(out := x.new_empty(2 * x.shape[0], x.shape[1]), x)
    return out


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    dist.reduce_scatter_tensor(out := x.new_empty(x.shape[0] // 2, x.shape[1]), x)
    return out


def reduce_scatter_list(x: torch.Tensor) -> torch.Tensor:
    dist.reduce_scatter(out := torch.empty_like(x[:2]), [x[:2], x[2:]], op=dist.ReduceOp.MAX)
    return out


def all_to_all(x: torch.Tensor) -> torch.Tensor:
    dist.all_to_all_single(out := torch.empty_like(x), x)
    return out


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(y := x + 1, async_op=True)
    work.wait()
    return y


def broadcast(x: torch.Tensor) -> torch.Tensor:
    dist.broadcast(y := x + 1, src=1)
    return y


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (all_reduce, "all_reduce"),
        (broadcast, "broadcast"),
        (all_gather, "all_gather_into_tensor"),
        (all_gather_into, "all_gather_into_tensor"),
        (reduce_scatter, "reduce_scatter_tensor"),
        (reduce_scatter_list, "reduce_scatter_tensor"),
        (all_to_all, "all_to_all_single"),
    ],
)
def test_a_collective_is_one_operator_that_is_waited_for(function: Any, name: str) -> None:
    operators = graph_of(function, torch.ones(4, 3))
    assert [o for o in operators if o.startswith("_c10d_functional.")] == [
        f"_c10d_functional.{name}",
        "_c10d_functional.wait_tensor",
    ]
    assert not [o for o in operators if o.startswith("c10d.")]
    x = torch.ones(4, 3)
    assert aot_compile(function)(x).shape == function(x).shape


def names_of(function: Any, *tensors: torch.Tensor) -> list[str]:
    return [name.split(".")[1] for name in graph_of(function, *tensors)]


def test_a_collective_is_waited_for_where_it_is_first_read() -> None:
    """So that what does not need it runs meanwhile; views and copies do not read."""

    def overlapped(x: torch.Tensor) -> torch.Tensor:
        first, second = x * 2, x.new_empty(8, 3)
        dist.all_reduce(first, async_op=True)
        work = dist.all_gather_into_tensor(second, x, async_op=True)
        other = x.exp()
        work.wait()
        part = second[:4] * other
        return part + first

    found = [n for n in names_of(overlapped, torch.ones(4, 3)) if n not in ("view", "copy", "slice", "new_empty")]
    assert found == [
        "mul", "all_reduce", "all_gather_into_tensor", "exp", "wait_tensor", "mul", "wait_tensor", "add",
    ]  # fmt: skip


def test_one_that_nobody_reads_runs_all_the_same() -> None:
    """Another rank may read it, and would wait for ever."""

    def unread(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x.sum())
        return x + 1

    assert names_of(unread, torch.ones(4, 3)) == ["sum", "all_reduce", "add", "wait_tensor"]


def test_one_that_nobody_reads_in_backward_runs_all_the_same() -> None:
    seen: list[list[str]] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append([str(n.target).split(".")[1] for n in graph.graph.nodes if "c10d" in str(n.target)])
        return torch.fx.Interpreter(graph).run

    def hooked(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y.detach().sum())

        def report(gradient: torch.Tensor) -> None:
            dist.all_reduce(gradient.sum(), async_op=True)

        y.register_hook(report)
        return y.sin()

    for partition in ({}, {"partition_fn": min_cut_rematerialization_partition}):
        seen.clear()
        aot_compile(hooked, fw_compiler=keep, **partition)(torch.ones(3, requires_grad=True)).sum().backward()  # type: ignore[arg-type]
        assert seen == [["all_reduce", "wait_tensor"]] * 2


def test_what_waits_when_it_is_read_is_a_wait_in_a_graph() -> None:
    """It has no memory, and what inductor made of it has killed the process."""

    def differentiable(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) * 3  # type: ignore[no-any-return]

    assert names_of(differentiable, torch.ones(3, requires_grad=True)) == ["mul", "all_reduce", "wait_tensor", "mul"]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: dist.barrier(), "`torch.distributed.barrier` cannot be part of a graph"),
        (lambda x: dist.send(x, 1), "`torch.distributed.send` cannot be part of a graph"),
        (lambda x: dist.reduce(x, 0), "`torch.distributed.reduce` cannot be part of a graph"),
        (
            lambda x: dist.all_gather([x.new_empty(1), x.new_empty(2)], x.new_empty(1)),
            "where ranks have tensors of several shapes",
        ),
    ],
)
def test_what_no_graph_can_have_is_refused_by_name(function: Any, what: str) -> None:
    with pytest.raises(TraceError, match=what) as error:
        aot_compile(function)(torch.ones(2))
    assert "test_functional.py" in str(error.value) and "Instead: call it outside" in str(error.value)
