"""Estimates of bytes and time: they order operators as their arithmetic and memory do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from subclass_aot import trace_joint
from subclass_aot.passes.costs import bytes_of, packed_bytes_of, time_us


def node(fn: Any, *args: Any, name: str, **options: Any) -> Any:
    graph = trace_joint(fn, *args, **options).graph_module.graph
    return next(n for n in graph.nodes if name in str(n.target))


def test_bytes_of_a_result() -> None:
    x = torch.rand(4, 6, dtype=torch.float64)
    assert bytes_of(node(lambda x: x.exp(), x, name="exp")) == 4 * 6 * 8
    assert packed_bytes_of(node(lambda x: x.exp(), x, name="exp")) == 4 * 6
    layer_norm = node(lambda x: F.layer_norm(x, (6,)), x, name="native_layer_norm")
    assert bytes_of(layer_norm) == (4 * 6 + 4 + 4) * 8, "all results count"


def test_symbolic_sizes_count_as_in_the_example() -> None:
    x = torch.rand(5, 7)
    assert bytes_of(node(lambda x: x.exp(), x, name="exp", dynamic=True)) == 5 * 7 * 4


def test_views_and_numbers_take_no_time() -> None:
    x = torch.rand(5, 8)
    assert time_us(node(lambda x: x.t(), x, name="aten.t")) == 0
    assert time_us(node(lambda x: x * x.shape[0], x, name="sym_size", dynamic=True)) == 0


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
    assert time_us(node(fn, x, name=name)) > 5 * time_us(node(lambda x: x + x, x, name="add"))


def test_backward_of_products_takes_longer_than_forward() -> None:
    x, w = torch.rand(1, 64, 64, 64, requires_grad=True), torch.rand(64, 64, 3, 3, requires_grad=True)
    graph = trace_joint(F.conv2d, x, w).graph_module.graph
    forward, backward = (n for n in graph.nodes if "convolution" in str(n.target))
    assert 1.5 * time_us(forward) < time_us(backward) < 3 * time_us(forward)
