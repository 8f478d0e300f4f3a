"""The function that runs a graph for the backend "eager"."""

from __future__ import annotations

import math
import operator
import weakref
from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot import aot_compile
from subclass_aot.backends.bindings import BINDINGS, binding_of
from subclass_aot.backends.one_by_one import write_graph
from tests.backends.test_bindings import ARGUMENTS as MORE

X, Y = torch.rand(4, 4) + 0.1, torch.rand(4, 4) + 0.1
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "aten._local_scalar_dense.default": [(X[0, 0],)],
    "aten.addmm.default": [(X, X, Y)],
    "aten.bmm.default": [(X[None], Y[None])],
    "aten.mm.default": [(X, Y)],
    "aten.as_strided_scatter.default": [(X, Y[0], [4], [4]), (X, Y[1:3, :2], [2, 2], [2, 1], 3)],
    "aten.cat.default": [([X, Y],), ([X, Y], 1)],
    "aten.stack.default": [([X, Y],), ([X, Y], 1)],
    "aten.cumsum.default": [(X, 1)],
    "aten.gather.default": [(X, 0, torch.ones(4, 4, dtype=torch.long))],
    "aten.maximum.default": [(X, Y)],
    "aten.minimum.default": [(X, Y)],
    "aten.permute.default": [(X, [1, 0])],
    "aten.unsqueeze.default": [(X, 1)],
    "aten.expand.default": [(X[None], [3, 4, -1])],
    "aten.view.default": [(X, [2, -1])],
    "aten.copy_.default": [(X, Y), (X, Y[0])],
    "aten.add_.Tensor": [(X, Y), (X, 2)],
    "aten.mean.dim": [(X, [1]), (X, [0, 1], True)],
    "aten.pow.Tensor_Scalar": [(X, 2), (X, 0.5)],
    "aten.select.int": [(X, 1, -1)],
    "aten.squeeze.dim": [(X[None], 0), (X, 0)],
    "aten.sum.dim_IntList": [(X, [1]), (X, [0], True)],
    "aten.transpose.int": [(X, 0, 1)],
    "aten.unbind.int": [(X,), (X, 1)],
    "aten.where.self": [(X > 0.5, X, Y)],
    "aten.tril.default": [(X, 1), (X,)],
    "aten.triu.default": [(X, -1)],
}


@pytest.mark.parametrize("func", BINDINGS, ids=str)
def test_a_binding_is_its_operator(func: Any) -> None:
    two = [(X, Y), (X, 2), (X, 2.5), (X.long(), 2.5), (X, torch.tensor(2.0, dtype=torch.float64))]
    one = [(X,), (X.t(),), (X[::2],)]
    usual = [MORE[func]] if func in MORE else two if func._overloadname == "Tensor" else one
    for args in ARGUMENTS.get(str(func), usual):
        given, expected = (f(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
                           for f in (binding_of(func), func))  # fmt: skip
        for a, b in zip(given, expected, strict=True) if isinstance(expected, list | tuple) else [(given, expected)]:
            if isinstance(b, float):
                assert a == b
                continue
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            assert a.equal(b) or "empty" in str(func)


@pytest.mark.parametrize("func", [torch.add, torch.sub])
def test_a_binding_takes_what_is_given_by_name(func: Any) -> None:
    x = torch.rand(3)
    assert aot_compile(lambda x: func(x, x * 2, alpha=3))(x).equal(func(x, x * 2, alpha=3))


def run(fn: Any, *args: Any) -> Any:
    return write_graph(fx.symbolic_trace(fn))(list(args))[0]


def test_arguments_of_all_kinds() -> None:
    aten: Any = torch.ops.aten
    graph = fx.Graph()
    x, n = graph.placeholder("x"), graph.placeholder("n")
    options = {"dtype": torch.float64, "device": torch.device("cpu")}
    y = graph.call_function(aten.full.default, ([2, n], math.inf), options)
    z = graph.call_function(aten.clamp.default, (x, None, 1e30))
    part = graph.call_function(aten.slice.Tensor, (y, 1, 0, n))
    row = graph.call_function(aten.select.int, (z, 0, -1))
    whole = graph.call_function(aten.cat.default, ([part, z],))
    last = graph.call_function(operator.getitem, (row, slice(1, n)))
    graph.output((whole, last, None))
    first, second, nothing = write_graph(fx.GraphModule(torch.nn.Module(), graph))([torch.ones(1, 3), 3])
    assert first.tolist() == [[math.inf] * 3] * 2 + [[1.0] * 3] and second.tolist() == [1.0, 1.0] and nothing is None


def test_what_is_not_read_any_more_is_let_go() -> None:
    """Inputs, too: what backward was given to read is gone when its last reader ran."""
    alive: list[weakref.ref[torch.Tensor]] = []
    seen: list[bool] = []

    @torch.library.custom_op("subclass_aot_tests::note", mutates_args=())
    def note(x: torch.Tensor, first: bool) -> torch.Tensor:
        if first:
            alive.append(weakref.ref(x))
        else:
            seen.append(alive[-1]() is None)
        return x.clone()

    def fn(x: Any) -> Any:
        op = torch.ops.subclass_aot_tests.note.default
        return (op(op(x, True), False),)

    inputs = [torch.ones(3)]
    write_graph(fx.symbolic_trace(fn))(inputs)
    assert inputs == [] and seen == [True]


def test_an_error_shows_the_line() -> None:
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: (torch.ops.aten.view.default(x, [5]),), torch.ones(4))
    assert "view" in str(caught.traceback[-1].statement)
