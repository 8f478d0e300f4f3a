"""Fake tensors on the nodes of a graph: when they are made, what they share, and what has them."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import fake_tensor_unsupported
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

import subclass_aot as sa
from subclass_aot.engine.compilers import Fakes
from subclass_aot.engine.passes import default_partition
from subclass_aot.testing import difference

aten = torch.ops.aten


def graph_of(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> fx.GraphModule:
    """A graph as the library has it inside: with its own tensors without data."""
    joint = sa.trace_joint(function, *args, dynamic=dynamic)
    joint.vals.put_back(joint.graph_module)
    return joint.graph_module


def called(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def unread(graph: fx.GraphModule) -> bool:
    return all(type(dict.get(node.meta, "val")) is sa.MetaTensor for node in called(graph))


def test_none_is_made_before_one_is_read() -> None:
    graph = graph_of(lambda x: x.sin().cos().exp(), torch.rand(3))
    fakes = Fakes(graph)
    first, *others = called(graph)
    assert first.meta["stack_trace"] and "val" in first.meta and {"val", "spec"} < set(first.meta) and unread(graph)
    assert [type(x) for x in fakes.inputs] == [FakeTensor] and unread(graph)
    assert type(first.meta["val"]) is FakeTensor and all(type(dict.get(n.meta, "val")) is FakeTensor for n in others)
    assert graph.graph.find_nodes(op="placeholder")[0].meta["val"] is fakes.inputs[0]


READS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "get": lambda meta: meta.get("val"),
    "item": lambda meta: meta["val"],
    "pop": lambda meta: meta.pop("val"),
    "items": lambda meta: dict(meta.items())["val"],
    "values": lambda meta: next(x for x in meta.values() if isinstance(x, torch.Tensor)),
    "dict": lambda meta: dict(meta)["val"],
    "stars": lambda meta: {**meta}["val"],
    "update": lambda meta: (other := {}, other.update(meta))[0]["val"],
    "copy": lambda meta: copy.copy(meta)["val"],
    "method": lambda meta: meta.copy()["val"],
    "or": lambda meta: (meta | {"more": 1})["val"],
    "ror": lambda meta: ({"more": 1} | meta)["val"],
    "setdefault": lambda meta: meta.setdefault("val", None),
    "popitem": lambda meta: dict([meta.popitem() for _ in range(len(meta))])["val"],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_each_way_to_read_one_gives_a_fake(read: Callable[[dict[str, Any]], Any]) -> None:
    graph = graph_of(lambda x: x.sin().cos(), torch.rand(3))
    fakes = Fakes(graph)
    assert isinstance(called(graph)[0].meta, dict)
    found = read(called(graph)[0].meta)
    assert type(found) is FakeTensor and found.fake_mode is fakes.mode


def test_copies_of_graphs_have_them() -> None:
    for copied in (lambda graph: copy.deepcopy(graph).graph, lambda graph: copy.deepcopy(graph.graph), _copied):
        graph = graph_of(lambda x: x.sin().max(0)[1] + 1, torch.rand(3, 2))
        Fakes(graph)
        vals = [node.meta["val"] for node in copied(graph).nodes if node.op == "call_function"]
        assert [type(x) for x in vals] == [FakeTensor, tuple, FakeTensor, FakeTensor]
        assert vals[1][1] is vals[2]


def _copied(graph: fx.GraphModule) -> fx.Graph:
    made = fx.Graph()
    made.graph_copy(graph.graph, {})
    return made


def test_what_a_pass_has_set_or_made_stays() -> None:
    graph = graph_of(lambda x: x.sin().cos().exp(), torch.rand(3))
    Fakes(graph)
    first, second, third = called(graph)
    first.meta["val"] = "mine"
    shared = second.meta
    third.meta = shared
    graph.graph.inserting_before(second)
    assert type(second.meta["val"]) is FakeTensor and first.meta["val"] == "mine"
    assert third.meta["val"] is second.meta["val"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_share_storage_as_when_the_graph_runs(dynamic: bool) -> None:
    def program(x: Any, y: Any) -> Any:
        a, b = x.split(2, 1)
        double = (x * 2)[1:]
        views = (
            a.t()[1:],
            b.unbind(0)[0],
            y[2:].view(torch.int32).unsqueeze(0),
            double.select(0, 1),
            double.expand(2, 3, 4),
        )
        return [view + 1 for view in views]

    x, y = torch.rand(5, 9)[1:, 3:7], torch.rand(8)[1:]
    graph = graph_of(program, x, y, dynamic=dynamic)
    fakes, values = Fakes(graph), dict[fx.Node, Any]()

    class Runs(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    Runs(graph).run(x, y)
    tensors = [n for n in graph.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    assert len(tensors) >= 10
    pointer = {n: values[n].untyped_storage()._cdata for n in tensors}
    storage = {n: n.meta["val"].untyped_storage()._cdata for n in tensors}
    for a in tensors:
        val = a.meta["val"]
        assert val.dtype == values[a].dtype and val.fake_mode is fakes.mode
        assert (tuple(map(int, val.shape)), val.stride()) == (tuple(values[a].shape), values[a].stride())
        assert val.storage_offset() == values[a].storage_offset()
        for b in tensors:
            assert (pointer[a] == pointer[b]) == (storage[a] == storage[b]), (a, b)


def test_a_pickled_graph_is_as_before() -> None:
    again = pickle.loads(pickle.dumps(sa.trace_joint(nn.Tanh(), torch.rand(3, requires_grad=True))))
    assert [type(x) for x in again.fake_inputs()] == [FakeTensor, FakeTensor]
    vals = [n.meta["val"] for n in again.graph_module.graph.find_nodes(op="placeholder")]
    assert all(a is b for a, b in zip(vals, again.fake_inputs(), strict=True))


def test_a_partitioner_gets_fakes_and_the_graph_has_its_own_again() -> None:
    seen = []

    def partition(joint: fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
        vals = [node.meta["val"] for node in joint.graph.nodes if node.op != "output"]
        seen.extend(type(x) for x in (*inputs, *vals))
        assert len({id(x) for x in inputs}) == len(inputs)
        return torch._functorch.partitioners.default_partition(joint, inputs, **options)

    x = torch.rand(3, requires_grad=True)
    compiled = sa.aot_compile(lambda x, y: x * y, partition_fn=partition)
    compiled(x, torch.rand(3)).sum().backward()
    assert set(seen) == {FakeTensor}


# Compilers as they are written for AOTAutograd.


def exports(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return torch.export.export(graph, tuple(inputs)).module()


def traces(mode: str, graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return make_fx(graph, tracing_mode=mode)(*inputs)


@fake_tensor_unsupported
def calibrates(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """Runs on real inputs, and keeps what came out."""
    assert not any(isinstance(x, FakeTensor) for x in inputs)
    count = len(graph(*inputs))
    return lambda *given: graph(*given)[:count]


def by_identity(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """Finds its inputs by the example that stands for them."""
    kept = {id(x): i for i, x in enumerate(inputs)}
    positions = [kept[id(n.meta["val"])] for n in graph.graph.find_nodes(op="placeholder")]
    return lambda *given: graph(*[given[i] for i in positions])


COMPILERS: dict[str, Any] = {
    "export": exports, "real": functools.partial(traces, "real"), "fake": functools.partial(traces, "fake"),
    "symbolic": functools.partial(traces, "symbolic"), "calibrates": calibrates, "identity": by_identity,
}  # fmt: skip


def layer() -> nn.Module:
    """A layer of two parameters of one look, which must not be taken for each other."""
    made = nn.LayerNorm(4)
    with torch.no_grad():
        made.weight.copy_(torch.arange(4.0))
        made.bias.copy_(torch.arange(4.0) * 7)
    return made


def through(door: str, module: Any, x: Any, compiler: Any, dynamic: bool) -> Any:
    if door == "aot_compile":
        return sa.aot_compile(module, fw_compiler=compiler, dynamic=dynamic)
    if door == "backend":
        torch.compiler.reset()
        options = {"fw_compiler": compiler}
        return torch.compile(module, backend="subclass_aot", options=options, dynamic=dynamic)  # type: ignore[call-overload]
    return sa.compile_joint(sa.trace_joint(module, x, dynamic=dynamic), fw_compiler=compiler).bind(module)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("door", ["aot_compile", "backend", "compile_joint"])
@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
def test_compilers_that_trace_again_or_calibrate(compiler: Any, door: str, dynamic: bool) -> None:
    module = layer()
    for inference in (False, True):
        x = torch.rand(3, 4, requires_grad=not inference)
        with torch.set_grad_enabled(not inference):
            run = through(door, module, x, compiler, dynamic)
            for rows in (3, 5) if dynamic else (3,):
                x = torch.rand(rows, 4, requires_grad=not inference)
                results = module(x), run(x)
                torch.testing.assert_close(*results)
                if not inference:
                    given = [x, *module.parameters()]
                    gradients = [torch.autograd.grad(y.sin().sum(), given) for y in results]
                    torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_they_do_with_wrappers(compiler: Any, dynamic: bool) -> None:
    def program(w: Any, x: Any, y: Any) -> Any:
        return (x @ w + y).relu() - y * 2

    w = sa.TwoTensor(torch.rand(4, 4), torch.rand(4, 4) * 3).requires_grad_()
    run = sa.aot_compile(program, fw_compiler=compiler, dynamic=dynamic)
    args = w, torch.rand(4, 4, requires_grad=True), torch.rand(4, 4)
    results = program(*args), run(*args)
    assert not difference(*results)
    gradients = [torch.autograd.grad(y, args[:2], torch.ones_like(y)) for y in results]
    assert not any(difference(*pair) for pair in zip(*gradients, strict=True))


IN_NUMPY: dict[Any, Callable[..., Any]] = {
    aten.mul.Tensor: np.multiply, aten.add.Tensor: np.add, aten.sub.Tensor: np.subtract, aten.mm.default: np.matmul,
    aten.relu.default: lambda x: np.maximum(x, 0), aten.t.default: np.transpose, aten.detach.default: lambda x: x,
    aten.sum.dim_IntList: lambda x, dims, keepdim=False: x.sum(tuple(dims), keepdims=keepdim),
    aten.addmm.default: lambda bias, x, y: x @ y + bias, aten.neg.default: np.negative,
    aten.threshold_backward.default: lambda gradient, result, value: np.where(result > value, gradient, 0),
    aten.view.default: lambda x, size: x.reshape(size), aten.sym_size.int: lambda x, dim: x.shape[dim],
}  # fmt: skip


def in_numpy(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """Writes one Python function of arrays, that knows its shapes from the examples."""
    nodes, names = list(graph.graph.nodes), [n.name for n in graph.graph.find_nodes(op="placeholder")]
    lines = [f"def run({', '.join(names)}):"]
    lines += [
        f"    {x} = {x}.detach().numpy()" for x, e in zip(names, inputs, strict=True) if isinstance(e, FakeTensor)
    ]
    for i, node in enumerate(nodes):
        if node.op == "call_function":
            lines.append(f"    {node.name} = table[nodes[{i}].target](*{node.args!r})")
            if isinstance(node.meta["val"], FakeTensor):
                sizes = [n if isinstance(n, int) else None for n in node.meta["val"].shape]
                lines.append(f"    assert all(b in (a, None) for a, b in zip({node.name}.shape, {sizes}))")
    results: Any = nodes[-1].args[0]
    made = [f"from_numpy(ascontiguousarray({x}))" if isinstance(x, fx.Node) else repr(x) for x in results]
    lines.append(f"    return [{', '.join(made)}]")
    scope: dict[str, Any] = {"table": IN_NUMPY, "nodes": nodes, "from_numpy": torch.from_numpy}
    exec("\n".join(lines), scope | {"ascontiguousarray": np.ascontiguousarray}, scope)
    scope["run"].__globals__.update(scope)
    return scope["run"]


@pytest.mark.parametrize("door", ["aot_compile", "backend", "compile_joint"])
def test_a_compiler_in_numpy(door: str) -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    for inference in (False, True):
        x = torch.rand(3, 4, requires_grad=not inference)
        with torch.set_grad_enabled(not inference):
            run = through(door, module, x, in_numpy, False)
            results = module(x), run(x)
        torch.testing.assert_close(*results)
        if not inference:
            given = [x, *module.parameters()]
            torch.testing.assert_close(*[torch.autograd.grad((y * y).sum(), given) for y in results])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", ["aot_compile", "backend"])
def test_inductor_may_be_such_a_compiler(door: str) -> None:
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    def program(w: Any, x: Any) -> Any:
        x = x.clone()
        x[1:].mul_(w)
        return x.unbind(1)[0], x.sum(0)

    options: Any = {
        "fw_compiler": lambda graph, inputs: compile_fx_inner(graph, inputs),
        "bw_compiler": lambda graph, inputs: compile_fx_inner(graph, inputs, is_backward=True),
        "decompositions": select_decomp_table(),
    }
    torch.compiler.reset()
    if door == "aot_compile":
        run = sa.aot_compile(program, dynamic=True, **options)
    else:
        run = torch.compile(program, backend="subclass_aot", dynamic=True, options=options)
    for n in (3, 5):
        w, x = torch.rand(4, requires_grad=True), torch.rand(n, 4, requires_grad=True)
        results = program(w, x), run(w, x)
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*[torch.autograd.grad(y[0].sum() + y[1].prod(), (w, x)) for y in results])


def test_sizes_by_data_that_are_known_by_now() -> None:
    """A mask of constants: no number of the graph is a symbol any more."""

    def compiler(graph_module: fx.GraphModule, examples: Any) -> Any:
        return graph_module.forward

    x = torch.rand(3, requires_grad=True)
    compiled = sa.aot_compile(torch.combinations, fw_compiler=compiler, dynamic=True)
    assert torch.equal(compiled(x), torch.combinations(x))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
def test_the_default_partition_makes_none_and_both_graphs_share_them(is_read: bool, dynamic: bool) -> None:
    """Those of the joint graph are those of its parts; what is saved as booleans has its own."""

    def program(x: Any, w: Any) -> Any:
        hidden = (x @ w).relu()
        return (hidden * torch.bernoulli(torch.full_like(hidden, 0.5))).max(0)[0].sin()

    args = torch.rand(64, 48), torch.rand(48, 48, requires_grad=True)
    joint = sa.trace_joint(program, *args, dynamic=dynamic)
    if is_read:
        joint.graph_module.graph.find_nodes(op="placeholder")[0].meta["val"]
    options: dict[str, Any] = {"num_fwd_outputs": joint.num_forward_outputs, "fuses": True}
    forward, backward = default_partition(joint.graph_module, (), **options)
    of_joint = {node.name: dict.get(node.meta, "val") for node in joint.graph_module.graph.nodes}
    assert is_read or not any(type(x) is FakeTensor for x in of_joint.values())
    del joint
    gc.collect()  # the fakes do not die with the joint graph
    nodes = [node for graph in (backward, forward) for node in graph.graph.nodes if node.op != "output"]
    vals = {node: node.meta["val"] for node in nodes}
    tensors = [x for val in vals.values() for x in (val if isinstance(val, tuple) else (val,)) if is_tensor(x)]
    assert {type(x) for x in tensors} == {FakeTensor} and len({x.fake_mode for x in tensors}) == 1
    masks = [node for node, val in vals.items() if is_tensor(val) and val.dtype == torch.bool]
    assert {node.op for node in masks} == {"placeholder", "call_function"}
    assert all(node.meta["tensor_meta"].dtype == torch.bool for node in masks)
    saved = {node.name: vals[node] for node in forward.graph.output_node().all_input_nodes}
    taken = [node for node in backward.graph.find_nodes(op="placeholder") if node.name in saved and node not in masks]
    assert len(taken) >= 2 and all(saved[node.name] is vals[node] for node in taken)


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)
