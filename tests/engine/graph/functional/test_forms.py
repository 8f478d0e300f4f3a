"""Functionalization keeps strides and draws: what a graph without mutation computes is what eager computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from subclass_aot import TwoTensor, aot_compile, trace_joint
from subclass_aot.base._torch.wrappers import foreign_two_tensor
from subclass_aot.errors import DataDependentError, MutationError
from subclass_aot.testing import difference

aten: Any = torch.ops.aten

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "copy_": lambda x, y: x.copy_(y.t()),
    "out": lambda x, y: torch.sin(y.t(), out=x),
    "out of two": lambda x, y: torch.sort(y.t(), out=(x, torch.empty(3, 3, dtype=torch.int64)))[0],
    "setitem": lambda x, y: x.__setitem__(slice(None), y.t()),
    "scatter_": lambda x, y: x.scatter_(0, torch.tensor([[1]]), 0.5),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([1]), y[:1]),
    "index_put_": lambda x, y: x.index_put_((torch.tensor([0, 2]),), y[1]),
    "masked_scatter_": lambda x, y: x.masked_scatter_(x > 0.5, y.t()),
    "cumsum_": lambda x, y: x.cumsum_(0),
    "tril_": lambda x, y: x.tril_(),
    "addmm_": lambda x, y: x.addmm_(y, y),
    "mul_": lambda x, y: x.mul_(y.t()),
    "normal_": lambda x, y: x.normal_(),
    "bernoulli_": lambda x, y: x.bernoulli_(0.5),
    "dropout": lambda x, y: F.dropout(x, inplace=True),
    "alpha_dropout": lambda x, y: F.alpha_dropout(x, 0.5, training=True, inplace=True),
    "exponential_": lambda x, y: x.exponential_(),
    "fill a slice": lambda x, y: x[1:].fill_(2.0),
}


@pytest.mark.parametrize("layout", ["packed", "transposed"])
@pytest.mark.parametrize("write", WRITES)
def test_strides_and_draws(write: str, layout: str) -> None:
    def program(x: Any, y: Any) -> Any:
        value = (x if layout == "packed" else x.t()).clone()
        WRITES[write](value, y)
        return value, value * 2, value.as_strided((9,), (1,))

    results = []
    for call in (program, aot_compile(program)):
        torch.manual_seed(0)
        results.append(call(torch.rand(3, 3), torch.rand(3, 3)))
    for expected, got in zip(*results, strict=True):
        assert expected.stride() == got.stride()
        torch.testing.assert_close(expected, got)


def out_of_a_view(x: Any, y: Any) -> Any:
    value = x * 2
    return torch.sin(y[0, :1], out=value[1]), value + 1


def out_of_what_has_views(x: Any, y: Any) -> Any:
    value = x * 2
    first = value[0]
    return torch.mm(y[:2], y[:2].t(), out=value) + 1, first * 2


def out_of_a_transposed_view(x: Any, y: Any) -> Any:
    value = x * 2
    out = torch.mm(y[:2], y[:2].t(), out=value.t())
    return out.add_(1) * 2, value * 2


def out_of_what_is_transposed(x: Any, y: Any) -> Any:
    out = torch.sin(y.t()[:2], out=x * 2)
    return out, out.stride()


def out_of_nothing(x: Any, y: Any) -> Any:
    out = torch.sin(y.t()[:2], out=torch.empty(0))
    return out, out.stride()


def out_of_another_rank(x: Any, y: Any) -> Any:
    return torch.sin(x[:2, :2], out=torch.stack([x[:2, :2], x[:2, :2]])) + torch.sin(y, out=torch.stack([y, y]))[0, 0]


def out_that_grows(x: Any, y: Any) -> Any:
    return torch.sin(y.repeat(2, 1), out=x * 2)


OTHER_SIZES = [
    out_of_a_view, out_of_what_has_views, out_of_a_transposed_view, out_of_what_is_transposed, out_of_nothing,
    out_of_another_rank, out_that_grows,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", OTHER_SIZES)
def test_out_of_another_size(program: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = aot_compile(program, dynamic=dynamic)
    for size in (3, 4):
        x, y = torch.rand(size, size), torch.rand(size, size)
        torch.testing.assert_close(compiled(x, y), program(x, y))
    assert "with symbols it fails" not in compiled.explain()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dynamic", [None, True])
def test_out_of_another_size_on_wrappers(dynamic: bool | None) -> None:
    """The outer tensor follows its parts, in its strides too."""

    def program(x: Any) -> Any:
        out = torch.sin(x.t(), out=x.sum())
        return out, out.shape, out.stride()

    compiled = aot_compile(program, dynamic=dynamic)
    for size in (2, 4):
        x = TwoTensor(torch.rand(size, 3), torch.rand(size, 3))
        expected, got = program(x), compiled(x)
        assert expected[1:] == got[1:] == ((3, size), (1, 3))
        assert not difference(expected[0], got[0])
    assert "with symbols it fails" not in compiled.explain()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_a_view_of_a_parameter() -> None:
    def program(weight: Any, x: Any) -> None:
        with torch.no_grad():
            torch.sin(x, out=weight.t())

    found = torch.rand(2, 3, requires_grad=True), torch.rand(2, 3, requires_grad=True)
    for call, weight in zip((program, aot_compile(program)), found, strict=True):
        call(weight, torch.arange(6.0).view(2, 3))
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_input_as_out_of_another_size_is_refused() -> None:
    """Before what is wrong of it in a class that does not follow: its outer size is another than that of its parts."""

    def program(x: Any, y: Any) -> Any:
        torch.sin(x, out=y)
        return y.view_as(y)

    with torch.inference_mode(), pytest.raises(MutationError, match=r"args\[1\].a has another size"):
        aot_compile(program)(torch.rand(2, 2), foreign_two_tensor()(torch.rand(2, 3), torch.rand(2, 3)))


def test_out_of_a_size_by_data_is_refused_by_its_name() -> None:
    for dynamic in (None, True):
        with pytest.raises(DataDependentError, match=r"aten.nonzero.out asks for values"):
            aot_compile(lambda x: torch.nonzero(x, out=torch.empty(0).long()), dynamic=dynamic)(torch.eye(2))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("times", [1, 2])
def test_out_that_grows_is_refused_where_others_share_its_storage(times: int) -> None:
    def of_a_view(x: Any) -> Any:
        value = x * 2
        return torch.sin(x.repeat(times, 1), out=value[0]) * 2, value * 2

    def of_a_base(x: Any) -> Any:
        value = x * 2
        first = value[0]
        return torch.sin(x.repeat(times + 1, 1), out=value) * 2, first * 2

    message = r"`out=` is too small(.*\n)+.*test_forms.py(.*\n)+.*\] before, \[\d, 3\] after"
    for program in (of_a_view, of_a_base):
        with pytest.raises(MutationError, match=message):
            aot_compile(program)(torch.rand(3, 3))


def test_draws_on_wrappers() -> None:
    def program(x: Any) -> Any:
        return F.dropout(x.t()) + torch.rand_like(x.t())

    results = []
    for call in (program, aot_compile(program)):
        torch.manual_seed(0)
        results.append(call(TwoTensor(torch.ones(20, 30), torch.ones(20, 30))))
    torch.testing.assert_close(results[0].a, results[1].a)
    torch.testing.assert_close(results[0].b, results[1].b)


def test_no_copy_is_left_of_the_detour() -> None:
    def program(x: Any) -> Any:
        value = x.t() * 1
        value.cumsum_(0)
        return value

    graph = trace_joint(program, torch.rand(3, 3)).graph_module.graph
    operators = [n.target for n in graph.nodes if n.op == "call_function"]
    assert aten.clone.default not in operators and aten.cumsum.default in operators
