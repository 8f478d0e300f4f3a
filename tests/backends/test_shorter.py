"""What was recorded as several operators and runs as one: the same results, to the last bit."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from tests.backends.test_reinplace import graphs_of


def linear(x: Any, w: Any, b: Any) -> Any:
    return (torch.nn.functional.linear(x, w, b) ** 2).sum()


def test_what_is_the_same_once_more_is_not_made_again() -> None:
    """The gradient of a weight is a transpose of a transpose, that of a bias drops a dim that was kept."""
    given = [torch.randn(size, requires_grad=True) for size in ((5, 3), (4, 3), (4,))]
    _, backward = graphs_of(linear, *given)
    assert re.findall(r"aten_(\w+)\(", backward) == [
        "expand",
        "mul_Scalar",
        "mul__Tensor",
        "mm",
        "t",
        "mm",
        "sum_dim_IntList",
    ]
    compiled = aot_compile(linear)
    for x, y in zip(*(torch.autograd.grad(f(*given), given) for f in (compiled, linear)), strict=True):
        assert x.equal(y) and x.stride() == y.stride()


@pytest.mark.parametrize("size", [(5, 3), (2, 5, 3)])
@pytest.mark.parametrize("how", ["packed", "transposed"])
def test_a_linear_layer_is_one_call(size: tuple[int, ...], how: str) -> None:
    x = torch.randn(size[::-1]).permute(*reversed(range(len(size)))) if how == "transposed" else torch.randn(size)
    w, b = torch.randn(4, 3), torch.randn(4)
    fn = torch.nn.functional.linear
    (forward,) = graphs_of(fn, x, w, b)
    is_one = len(size) == 2 or (len(size) == 3 and how == "packed")
    assert ("= aten_linear(" in forward) is is_one, forward
    assert aot_compile(fn)(x, w, b).equal(fn(x, w, b))


def test_a_layer_whose_result_is_flattened_runs_once() -> None:
    def fn(x: Any, w: Any, b: Any) -> Any:
        logits = torch.nn.functional.linear(x, w, b)
        return logits, logits.view(-1, 4).log_softmax(-1)

    args = torch.randn(2, 5, 3), torch.randn(4, 3), torch.randn(4)
    (forward,) = graphs_of(fn, *args)
    assert forward.count("= aten_linear(") == 1 and "addmm(" not in forward
    assert all(x.equal(y) for x, y in zip(aot_compile(fn)(*args), fn(*args), strict=True))


@pytest.mark.parametrize("dims", [[0], [0, 1], [-1]])
@pytest.mark.parametrize("size", [(4,), (3, 4), (1, 4), (2, 1)])
def test_a_sum_that_a_view_follows(dims: list[int], size: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 4).transpose(0, 1)

    def fn(x: Any) -> Any:
        total = x.sum(dims, keepdim=True)
        return total.view(size) if total.numel() == torch.Size(size).numel() else total

    assert aot_compile(fn)(x).equal(fn(x)) and aot_compile(fn)(x).stride() == fn(x).stride()
