"""What `_torch` tells where torch has no name for it, or no longer the same in each version."""

from __future__ import annotations

import gc
import random
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
import torch

from subclass_aot.base import _torch


def overloads() -> Iterator[Any]:
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and hasattr(torch.ops.aten, packet):
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")


def test_the_schema_says_what_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pointwise operators, the only ones that are asked about: `add_` and its kin, and `__iand__` and its."""
    monkeypatch.setattr("subclass_aot.base._torch.operators._INPLACE", None)
    pointwise = [func for func in overloads() if torch.Tag.pointwise in func.tags]
    found = {func for func in pointwise if _torch.operators.is_inplace(func)}
    named = {func for func in pointwise if re.fullmatch(r"\w+[^_]_|__i\w+__", func.overloadpacket.__name__)}
    assert len(found) > 100
    assert found == named
    if (tag := getattr(torch.Tag, "inplace", None)) is not None:
        assert found == {func for func in pointwise if tag in func.tags}


def test_dicts_are_walked_alike_before_and_after_the_first_trace() -> None:
    """Torch has optree walk them as they were filled, from an import on that a trace makes."""
    program = (
        "import torch, subclass_aot\n"
        "compiled = subclass_aot.aot_compile(lambda x: x['b'] - x['a'])\n"
        "given = {'b': torch.ones(2), 'a': torch.zeros(2)}\n"
        "compiled(given), compiled(given)\n"
        "print(compiled.recompiles)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_kernels_in_python_are_others_within_a_block_alone() -> None:
    dropout, x = torch.ops.aten.dropout.default, torch.ones(2)

    def gives_itself() -> bool:
        with _torch.dispatch.python_dispatcher():
            return torch.dropout(x, 0.5, False) is x

    assert not gives_itself()
    with _torch.python_kernels.python_kernels({dropout: lambda kernel: _torch.python_kernels.in_cpp(dropout)}):
        assert gives_itself()
    assert not gives_itself()


def test_operators_mean_what_they_were_recorded_as() -> None:
    """Whatever is around: autocast, a default device, a mode of the user's, a transform, autograd."""
    seen = []

    class Sees(_torch.dispatch.PassOn):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    def check(x: torch.Tensor) -> torch.Tensor:
        y = torch.ones(2, 2, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), Sees():
            with _torch.switches.as_recorded():
                made = y @ torch.ones(2, 2)
                assert not _torch.dispatch.inside_transform() and not _torch.dispatch.number_of_function_modes()
            assert made.dtype is torch.float32 and made.device.type == "cpu" and not made.requires_grad
        return x

    torch.func.vmap(check)(torch.ones(3))
    assert not seen


def test_a_graph_stays_whole_while_somebody_goes_through_its_nodes() -> None:
    """Torch's iterator over nodes reads memory that is none where a node has no neighbours."""
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.sin, (graph.placeholder("x"),)))
    names = [node.name for node in graph.nodes]
    nodes = iter(graph.nodes)
    found = [next(nodes).name]
    _torch.graphs.dismantle(graph)
    assert found + [node.name for node in nodes] == names
    del nodes
    _torch.graphs.dismantle(graph)
    assert not vars(graph)


_NAMES = [
    f"{base}{number}" for base in ("add", "sum", "a_b", "_", "x1", "") for number in ("", "_1", "_2", "_07", "_x")
]


@pytest.mark.parametrize("seed", range(20))
def test_new_nodes_are_those_of_torch(seed: int) -> None:
    """Also where a graph has a module, whose hooks see them."""
    chosen = random.Random(seed)
    names = chosen.choices([*_NAMES, None, "Big", "a.b"], k=40)  # type: ignore[list-item]
    mine, torchs = torch.fx.Graph(), torch.fx.Graph()
    module, seen = torch.fx.GraphModule({}, mine), list[str]()
    if chosen.random() < 0.8:
        mine._owning_module = None
    module._register_create_node_hook(lambda node: seen.append(node.name))
    last: dict[torch.fx.Graph, Any] = {mine: 1, torchs: 1}
    for name in names:
        for graph in last:
            args, kwargs = (last[graph], [last[graph], (2,)]), {"alpha": last[graph]}
            if graph is mine:
                last[graph] = _torch.graphs.new_node(graph, "call_function", torch.add, args, kwargs, name)
            else:
                last[graph] = graph.create_node("call_function", torch.add, args, kwargs, name)
    assert str(mine) == str(torchs) and len(mine.nodes) == len(torchs.nodes)
    assert seen == ([] if mine._owning_module is None else [node.name for node in mine.nodes])
    for one, other in zip(mine.nodes, torchs.nodes, strict=True):
        assert type(one.args[1]) is type(other.args[1]) and type(one.kwargs) is type(other.kwargs)
        assert [n.name for n in one.users] == [n.name for n in other.users]
    assert mine.find_nodes(op="call_function", target=torch.add) == list(mine.nodes)
    mine.lint()


def _graph_of_many() -> torch.fx.GraphModule:
    """A graph with arguments by keyword, in lists, read twice, a node that was erased, and sizes that others have."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    sine = graph.call_function(torch.sin, (x,))
    both = graph.call_function(torch.cat, ([x, sine, sine],), {"dim": 0})
    graph.call_function(torch.reshape, (both,), {"shape": _SIZES})
    graph.output((graph.call_function(torch.add, (both, x), {"alpha": 1}), [sine, None]))
    return _torch.graphs.make_graph_module(torch.nn.Module(), graph, "Many")


_SIZES = (6, 1)
_HELD: dict[str, Callable[[torch.fx.Graph], object]] = {
    "the graph": lambda graph: graph,
    "its nodes": lambda graph: graph.nodes,
    "all nodes": lambda graph: list(graph.nodes),
    "a node": lambda graph: next(iter(graph.nodes)),
    "readers of a node": lambda graph: next(iter(graph.nodes)).users,
    "arguments": lambda graph: graph.output_node().args,
    "a list among arguments": lambda graph: graph.output_node().args[0],
    "a method": lambda graph: graph.lint,
}


@pytest.mark.every_case
@pytest.mark.parametrize("erases", [False, True])
@pytest.mark.parametrize("held", _HELD)
def test_a_graph_stays_whole_while_somebody_has_a_part_of_it(held: str, erases: bool) -> None:
    module = _graph_of_many()
    names = [node.name for node in module.graph.nodes]
    if erases:
        module.graph.erase_node(module.graph.find_nodes(op="call_function", target=torch.reshape)[0])
        names.remove("reshape")
    graph, root = weakref.ref(module.graph), module.graph._root
    part = _HELD[held](module.graph)
    del module, root
    whole: Any = graph()
    assert [node.name for node in whole.nodes] == names
    del whole
    del part
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize("counts", ["all at once", "one by one"])
def test_a_graph_that_nobody_has_is_gone(counts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[object] = []
    count = _torch.graphs._is_held
    monkeypatch.setattr(_torch.graphs, "_is_held", lambda table: slow.append(0) or count(table))
    if counts == "one by one":
        monkeypatch.setattr(_torch.graphs, "_has_own_references", lambda table: False)
    module = _graph_of_many()
    graph = weakref.ref(module.graph)
    del module
    assert graph() is None and bool(slow) == (counts == "one by one")


def test_a_reference_to_a_generator_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_weak_ones in (True, False):
        if not has_weak_ones:  # torch 2.11
            monkeypatch.setattr(weakref, "ref", _refuse)
        generator = torch.Generator()
        reference = _torch.generator.reference_to(generator)
        assert reference() is generator
        assert reference() is generator
        other = [generator]
        del generator
        assert reference() is other[0]
        other.clear()
        assert reference() is None


def _refuse(of: object) -> NoReturn:
    raise TypeError("cannot create weak reference")


def test_a_solver_computes_each_expression_of_sizes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = _torch.symbolic.shape_env()
    n, m = (_torch.symbolic.new_size(solver, hint, f"x.size({hint})", None) for hint in (8, 6))
    assert (n * 2 + m).node is (n * 2 + m).node
    assert (n * 2).node is (n + n).node, "one expression has one node"
    asked = []
    evaluate = type(solver).evaluate_expr
    monkeypatch.setattr(type(solver), "evaluate_expr", lambda *a, **k: asked.append(a[1]) or evaluate(*a, **k))
    assert all([n * 2 > m * 2 + 3 for _ in range(3)])
    assert len(asked) == len(solver.guards) == 1
    with solver.suppress_guards():
        assert n > 5
    assert n > 5
    assert len(solver.guards) == 2, "what was asked while no guards were put gets its guard later"


def test_a_number_that_proves_to_be_known_is_known_in_what_was_computed_before() -> None:
    solver = _torch.symbolic.shape_env()
    n, m = (_torch.symbolic.new_size(solver, 8, f"x.size({i})", None) for i in range(2))
    total, is_same = n * 2 + 1, n == m
    assert int(n) == 8
    assert _torch.symbolic.expression_of(total) == 17
    assert is_same
    assert _torch.symbolic.expression_of(m * 2) == 16


def test_nodes_of_numbers_go_with_their_solver() -> None:
    solver = _torch.symbolic.shape_env()
    n, m = (_torch.symbolic.new_size(solver, 8, f"x.size({i})", None) for i in range(2))
    assert n * m >= m + n
    node = weakref.ref((n * m).node)
    _torch.symbolic.forget_answers(solver)
    del n, m
    assert node() is None


@pytest.mark.parametrize("n", [2, 7, 8, 9, 16, 29])
def test_lengths_of_whole_chunks_are_multiples(n: int) -> None:
    """Then no guard is put on how many chunks there are."""
    forms: dict[Callable[[Any], Any], int] = {
        (lambda n: n + -n % 8): -(-n // 8) * 8,
        (lambda n: n + (8 - n % 8) % 8): -(-n // 8) * 8,
        (lambda n: 2 * n + 1 + (8 - (2 * n + 1) % 8) % 8): -(-(2 * n + 1) // 8) * 8,
    }
    for form, expected in forms.items():
        solver = _torch.symbolic.shape_env()
        length = form(_torch.symbolic.new_size(solver, n, "x.size(0)", None))
        assert _torch.symbolic.example_of(length) == expected
        symbols = {symbol: n for symbol in _torch.symbolic.expression_of(length).free_symbols}
        assert _torch.symbolic.evaluate(_torch.symbolic.expression_of(length), symbols) == expected
        assert _torch.symbolic.is_same_expression(length // 8 * 8, length)
        assert not solver.guards


def test_stand_ins_serve_one_thread_and_what_is_there_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another library has put a function there, and in a trace within a trace."""
    called = []

    def count(torchs: Callable[..., Any], *args: Any) -> Any:
        called.append(torchs)
        return torchs(*args)

    class Holder:
        @staticmethod
        def found(x: int) -> int:
            return x + 1

    first = Holder.found
    monkeypatch.setattr(_torch.stand_ins, "_TABLE", [])
    _torch.stand_ins.stands_in(Holder, "found", is_static=True)(count)
    _torch.stand_ins.stands_in(Holder, "absent")(count)
    _torch.stand_ins.stands_in("no_module:Holder", "found")(count)
    for _ in range(2):
        with _torch.stand_ins.stand_ins():
            assert Holder().found(1) == 2 and Holder.found is not first
            thread = threading.Thread(target=Holder.found, args=(1,))
            thread.start(), thread.join()
    assert called == [first, first]
    Holder.found = staticmethod(lambda x: x + 2)  # type: ignore[method-assign]
    with _torch.stand_ins.stand_ins(), _torch.stand_ins.stand_ins():
        assert Holder.found(1) == 3
    assert len(called) == 4 and not hasattr(Holder, "absent") and Holder.found(1) == 3
    assert len(called) == 4
