"""Every pattern that `"eager"` looks for, in graphs as passes of others may make them: whatever the operands are."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot import aot_compile
from subclass_aot.backends import reinplace
from subclass_aot.backends.for_inductor import take_casts, take_entangled_writes, take_fastest
from subclass_aot.backends.in_place import BACKWARD_OF, OVERWRITING, STRIDED, VIEW_OF, WRITING
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.engine.compilers import example_inputs
from subclass_aot.engine.compilers.fakes import Fakes
from subclass_aot.meta import Spec, new_leaf

_aten = torch.ops.aten
INDEX, MASK = torch.tensor([1, 0]), torch.tensor([[True, False, True]] * 2)
BY_NAME: dict[str, tuple[Any, ...]] = {
    "select_scatter": (torch.ones(3), 0, 1), "slice_scatter": (torch.ones(1, 3), 0, 1, 2),
    "diagonal_scatter": (torch.ones(2),), "as_strided": ([2, 2], [1, 1]), "as_strided_copy": ([2, 2], [1, 1]),
    "as_strided_scatter": (torch.ones(2, 2), [2, 2], [1, 1]), "select_backward": ([2, 2, 3], 0, 1),
    "slice_backward": ([4, 3], 0, 1, 3, 1), "index_put": ([INDEX], torch.ones(2, 3)),
    "index_copy": (0, INDEX, torch.ones(2, 3)), "index_add": (0, INDEX, torch.ones(2, 3)),
    "index_fill": (0, INDEX, 2), "scatter": (0, INDEX[None, :], 2),
    "scatter_add": (0, INDEX[None, :], torch.ones(1, 2)),
    "scatter_reduce": (0, INDEX[None, :], torch.ones(1, 2), "sum"), "masked_fill": (MASK, 2),
    "masked_scatter": (MASK, torch.ones(4)), "fill": (2,), "clamp_min": (0.5,), "clamp_max": (0.5,),
    "clamp": (0.1, 0.5), "copy": (torch.ones(2, 3),), "clone": (), "pow": (1,), "t": (), "_to_copy": (),
    "view": ([6],), "_unsafe_view": ([6],), "sum": ([0], True), "addmm": (torch.ones(2, 2), torch.ones(2, 3)),
    "unsqueeze": (0,), "detach": (), "expand": ([2, 2, 3],),
}  # fmt: skip
TENSORS_LAST = {"fill.Tensor", "masked_fill.Tensor", "index_fill.int_Tensor"}
FUNCS = [
    *VIEW_OF, *BACKWARD_OF, *WRITING, *OVERWRITING, *sorted(STRIDED, key=str),
    _aten.copy.default, _aten.clone.default, _aten.pow.Tensor_Scalar, _aten.t.default, _aten._to_copy.default,
    _aten.view.default, _aten._unsafe_view.default, _aten.sum.dim_IntList, _aten.addmm.default,
    _aten.unsqueeze.default, _aten.detach.default, _aten.expand.default,
]  # fmt: skip
KINDS = ["inputs", "constants", "made", "made by name", "views"]


def arguments_of(func: Any) -> tuple[Any, ...]:
    name, overload = func.overloadpacket.__name__, func._overloadname
    if name in BY_NAME:
        more = BY_NAME[name]
    elif func in OVERWRITING and overload in ("Tensor", "Scalar"):
        more = (torch.full((2, 3), 1.5) if overload == "Tensor" else 1.5,)
    else:
        more = ()
    if f"{name}.{overload}" in TENSORS_LAST:
        more = (*more[:-1], torch.tensor(2.0))
    if name == "scatter" and overload == "src":
        more = (*more[:-1], torch.ones(1, 2))
    return torch.rand(2, 3) + 0.1, *more


class Made:
    """A graph of one operator, and what may stand before it and after."""

    def __init__(self, func: Any, kind: str, by_name: bool, then: str) -> None:
        self.graph, self.root, self.inputs = fx.Graph(), torch.nn.Module(), []  # type: ignore[var-annotated]
        args = fx.node.map_aggregate(arguments_of(func), lambda x: self.operand(x, kind))
        names = [a.name for a in func._schema.arguments]
        node = self.call(func, (), dict(zip(names, args, strict=False))) if by_name else self.call(func, args)
        results = [node]
        if then == "view":
            results = [self.call(_aten.view.default, (node, [-1]))]
        elif then == "linear":  # of what a pattern takes for a linear layer
            product = self.call(_aten.addmm.default, (self.operand(torch.ones(4), "inputs"), node, self.weight()))
            results = [self.call(_aten.view.default, (product, [1, -1, 4]))]
        elif then == "sum":
            total = self.call(_aten.sum.dim_IntList, (node, None, True))
            results = [self.call(_aten.view.default, (total, []))]
        self.graph.output(tuple(results))
        self.module = fx.GraphModule(self.root, self.graph)
        _Noted(self.module).run(*self.inputs)

    def weight(self) -> fx.Node:
        return self.call(_aten.t.default, (self.operand(torch.ones(4, 3), "inputs"),))

    def call(self, func: Any, args: Any, kwargs: Any = None) -> fx.Node:
        return self.graph.call_function(func, tuple(args), kwargs)

    def operand(self, value: Any, kind: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if kind == "constants":
            name = f"constant{len(vars(self.root)['_buffers'])}"
            self.root.register_buffer(name, value)
            return self.graph.get_attr(name)
        if value.dtype is torch.int64 or value.dtype is torch.bool or kind == "inputs":
            return self.input(value)
        if kind == "views":
            return self.call(_aten.alias.default, (), {"self": self.call(_aten.clone.default, (self.input(value),))})
        given = {"self": self.input(value), "other": 1}
        if kind == "made by name":
            return self.call(_aten.mul.Scalar, (), given)
        return self.call(_aten.mul.Scalar, tuple(given.values()))

    def input(self, value: torch.Tensor) -> fx.Node:
        self.inputs.append(value)
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        if first is None:
            return self.graph.placeholder(f"x{len(self.inputs)}")
        with self.graph.inserting_before(first):
            return self.graph.placeholder(f"x{len(self.inputs)}")


class _Noted(fx.Interpreter):
    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            n.meta["spec"] = Spec.of(value)
            n.meta["val"] = new_leaf(n.meta["spec"])
            n.meta["partitioner_tag"] = "is_forward"
        return value


def cases(func: Any) -> Any:
    for kind in KINDS:
        for by_name in (False, True):
            for then in ("", "view", "linear", "sum"):
                result = func(*arguments_of(func))
                if then == "linear" and (result.dim() != 2 or result.shape[1] != 3):
                    continue
                if then == "view" and not result.is_contiguous():
                    continue
                yield kind, by_name, then


@pytest.mark.parametrize("func", FUNCS, ids=str)
def test_patterns(func: Any) -> None:
    for case in cases(func):
        made = Made(func, *case)
        before = [x.clone() for x in made.inputs]
        (expected,) = made.module(*[x.clone() for x in made.inputs])
        for _ in range(2):
            (found,) = write_graph(made.module)(list(made.inputs))
            assert found.equal(expected) and found.stride() == expected.stride(), (case, made.graph)
        assert all(x.equal(y) for x, y in zip(made.inputs, before, strict=True)), (case, made.graph)
        Fakes(made.module, example_inputs(made.module)).inputs  # noqa: B018
        made.graph.output_node().args[0][0].meta["val"]  # type: ignore[index, union-attr]
        take_entangled_writes(made.module)
        take_casts(made.graph)
        take_fastest(made.graph)


def test_all_tables_are_here() -> None:
    """What a planner has a method for is among the operators of the test."""
    assert {func for table in (reinplace._IN_PLACE, reinplace._PARTS) for func in table} <= set(FUNCS)


def linear_of(given: Any) -> Any:
    return lambda x, w, b: torch.nn.functional.linear(given(x), w, b).view(-1, 2, 2)


@pytest.mark.parametrize("given", [lambda x: x, lambda x: x * 2, lambda x: x.view(-1, 3), lambda x: torch.ones(4, 3)])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_layer_whose_result_is_viewed(given: Any, dynamic: Any) -> None:
    x, w, b = torch.rand(4, 3), torch.rand(4, 3, requires_grad=True), torch.rand(4, requires_grad=True)
    function = linear_of(given)
    torch.compiler.reset()
    for compiled in (
        aot_compile(function, dynamic=dynamic),
        torch.compile(function, backend="subclass_aot", dynamic=dynamic),
    ):
        found = torch.autograd.grad(compiled(x, w, b).sum(), (w, b))
        expected = torch.autograd.grad(function(x, w, b).sum(), (w, b))
        assert all(map(torch.equal, found, expected)) and compiled(x, w, b).equal(function(x, w, b))


def test_a_layer_whose_result_has_symbols() -> None:
    def function(x: Any, y: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.linear(x.view(10, 3), w, b).view(y.shape[0], 5, 4)

    args = torch.rand(2, 5, 3), torch.ones(2), torch.rand(4, 3), torch.rand(4)
    assert aot_compile(function, dynamic=True)(*args).equal(function(*args))


def test_items_of_what_is_no_node() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(operator.getitem, ([x, x], 0)),))
    assert write_graph(fx.GraphModule({}, graph))([torch.ones(2)])[0].tolist() == [1, 1]
