"""Estimates of bytes and time: they order operators as their arithmetic and memory do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from subclass_aot import trace_joint
from subclass_aot.engine.passes.costs import Costs


def cost(fn: Any, *args: Any, name: str, **options: Any) -> tuple[float, float, float]:
    """Bytes, bytes as booleans, and microseconds of the first operator of that name."""
    graph = trace_joint(fn, *args, **options).graph_module.graph
    costs, node = Costs(graph), next(n for n in graph.nodes if name in str(n.target))
    return costs.num_bytes[node], costs.packed_bytes(node), costs.time_us[node]


def test_bytes_of_a_result() -> None:
    x = torch.rand(4, 6, dtype=torch.float64)
    assert cost(lambda x: x.exp(), x, name="exp")[:2] == (4 * 6 * 8, 4 * 6)
    layer_norm = cost(lambda x: F.layer_norm(x, (6,)), x, name="native_layer_norm")
    assert layer_norm[0] == (4 * 6 + 4 + 4) * 8, "all results count"


def test_symbolic_sizes_count_as_in_the_example() -> None:
    x = torch.rand(5, 7)
    assert cost(lambda x: x.exp(), x, name="exp", dynamic=True)[0] == 5 * 7 * 4


def test_views_and_numbers_take_no_time() -> None:
    x = torch.rand(5, 8)
    assert cost(lambda x: x.t() + 1, x, name="aten.t")[2] == 0 < cost(lambda x: x.t() + 1, x, name="add")[2]
    assert cost(lambda x: x.new_zeros(x.shape[0] + 1), x, name="sym_size", dynamic=True)[2] == 0


PRODUCTS = {
    "mm": (lambda x: x @ x, (512, 512)),
    "bmm": (lambda x: torch.bmm(x[None], x[None]), (512, 512)),
    "addmm": (lambda x: torch.addmm(x, x, x), (512, 512)),
    "baddbmm": (lambda x: torch.baddbmm(x[None], x[None], x[None]), (512, 512)),
    "convolution": (lambda x: F.conv2d(x, torch.ones(64, 64, 3, 3)), (1, 64, 64, 64)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (1, 1, 512, 512)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_takes_longer_than_a_sum_of_the_same_size(name: str) -> None:
    fn, size = PRODUCTS[name]
    x = torch.rand(size)
    assert cost(fn, x, name=name)[2] > 5 * cost(lambda x: x + x, x, name="add")[2]


def test_backward_of_products_takes_longer_than_forward() -> None:
    x, w = torch.rand(1, 64, 64, 64, requires_grad=True), torch.rand(64, 64, 3, 3, requires_grad=True)
    graph = trace_joint(F.conv2d, x, w).graph_module.graph
    costs = Costs(graph)
    forward, backward = (costs.time_us[n] for n in graph.nodes if "convolution" in str(n.target))
    assert 1.5 * forward < backward < 3 * forward
