"""Which operators of a graph go into a run, and what of them autograd sees. `tests/native/test_runs.py` runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot import aot_compile
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.backends.reinplace import plan_of
from subclass_aot.backends.runs import Run, runs_of
from subclass_aot.base import hooks

aten: Any = torch.ops.aten
X = torch.rand(4, 4) + 0.5


def graph_of(fn: Callable[..., Any], *args: Any, **options: Any) -> fx.GraphModule:
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    with torch.no_grad():
        aot_compile(fn, fw_compiler=keep, **options)(*args)
    return graphs[-1]


def runs(fn: Callable[..., Any], *args: Any, **options: Any) -> list[Run]:
    graph = graph_of(fn, *args, **options).graph
    output: Any = graph.output_node().args[0]
    return list(runs_of(plan_of(graph), output).values())


def operators(run: Run) -> list[str]:
    return [f"{name}.{overload}".removeprefix("aten::").removesuffix(".") for name, overload, *_ in run.steps]


def by_operator(run: Run) -> dict[str, str]:
    return dict(zip(operators(run), (how for *_, how in run.steps), strict=True))


def test_all_of_a_graph_is_one_run() -> None:
    (run,) = runs(lambda x, y: (x.sin() * y).chunk(2, 1)[1].sum(0) + 2, X, X.clone())
    assert operators(run) == ["sin", "mul_.Tensor", "split.Tensor", "sum.dim_IntList", "add_.Tensor"]
    assert (len(run.inputs), len(run.outputs)) == (2, 1)


def test_one_operator_is_none() -> None:
    assert runs(lambda x: x.sin(), X) == []


@torch.library.custom_op("subclass_aot_tests::in_python", mutates_args=())
def in_python(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@in_python.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_a_run_ends_at_an_operator_in_python() -> None:
    first, second = runs(lambda x: in_python(x.sin().exp() * 2).cos().neg() + x, X)
    assert operators(first) == ["sin", "exp_", "mul_.Tensor"]
    assert operators(second) == ["cos", "neg_", "add_.Tensor"]


@torch.library.custom_op("subclass_aot_tests::two_in_python", mutates_args=())
def two_in_python(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clone(), x + 1


@two_in_python.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clone(), x + 1


def test_a_run_begins_after_what_it_reads() -> None:
    """One of several results is there where it is taken out, and not before."""
    graph = graph_of(lambda x: two_in_python(x)[1].cos() * x.sin().exp(), X).graph
    item = next(node for node in graph.nodes if str(node.target) == "<built-in function getitem>")
    sin, exp = (next(n for n in graph.nodes if n.target is f) for f in (aten.sin.default, aten.exp.default))
    item.append(sin)
    sin.append(exp)
    exp.append(item)
    output: Any = graph.output_node().args[0]
    plan = plan_of(graph)
    for start, run in runs_of(plan, output).items():
        before = {node for node, _ in plan.steps[:start]} | set(graph.find_nodes(op="placeholder"))
        assert set(run.inputs) <= before
    run = write_graph(fx.GraphModule(torch.nn.Module(), graph))
    assert torch.equal(run([X])[0], (X + 1).cos() * X.sin().exp())


def test_parts_that_are_taken_out_later_do_not_end_a_run() -> None:
    def fn(x: Any) -> Any:
        parts, total = x.unbind(0), x[0]
        for part in parts:
            first, second = (total @ x).chunk(2, 0)
            total = torch.cat([first.sin(), second * part[:2]])
        return total

    (run,) = runs(fn, X)
    assert len(run.steps) > 20


def test_a_recurrent_layer_is_one_run() -> None:
    (run,) = runs(torch.nn.GRU(4, 4, 2), torch.rand(5, 2, 4))
    assert len(run.steps) > 100 and len(run.outputs) == 2


def test_a_run_ends_at_arithmetic_of_sizes() -> None:
    def fn(x: Any) -> Any:
        n = x.shape[0]
        y = x.sin().exp().view(-1)
        return (y[: n * 2].cos() * 2).view(2, n)

    found = runs(fn, X, dynamic=True)
    assert [*map(operators, found)] == [["sin", "exp_", "view"], ["slice.Tensor", "cos_", "mul.Tensor", "view"]]


def test_what_a_run_reads_for_the_last_time_is_marked() -> None:
    (run,) = runs(lambda x, y: torch.cat([x.sin(), x.cos(), y]) + y.sum(), X, X.clone())
    marks = [argument for _, _, arguments, _, _ in run.steps for argument in arguments]
    marks += [item for kind, value in marks if kind == "list" for item in value]
    last = [value for kind, value in marks if kind == "last"]
    assert len(last) == len(set(last))
    assert {run.inputs.index(node) for node in run.inputs} <= set(last)
    assert not set(run.results) & set(last)


def test_a_tensor_that_is_given_twice_goes_with_the_second() -> None:
    (run,) = runs(lambda x: torch.sub(x.exp(), 1).mul(x).neg() @ x, X)
    kinds = [[kind for kind, _ in arguments if kind != "constant"] for _, _, arguments, _, _ in run.steps]
    assert kinds[0] == ["place"] and kinds[-1] == ["last", "last"]
    (run,) = runs(lambda x: (x + x).sin(), X)
    assert [kind for kind, _ in run.steps[0][2]] == ["place", "last", "constant"]


def test_what_nobody_reads_has_no_place() -> None:
    (run,) = runs(lambda x: torch.nn.functional.layer_norm(x, (4,)).sin(), X)
    assert run.steps[0][3][0] >= 0 and set(run.steps[0][3][1:]) <= {-1}


class TestWhatAutogradSees:
    """Its kernels count writes and note views; below are the operators of which nobody can ask that."""

    def test_new_tensors(self) -> None:
        (run,) = runs(lambda x: (x.sin() @ x).sum(), X)
        assert set(by_operator(run).values()) == {"below"}

    def test_writes_into_what_the_run_made(self) -> None:
        def fn(x: Any) -> Any:
            y = x.clone()
            y[0].mul_(2)
            return y

        found = by_operator(runs(fn, X)[0])
        assert set(found.values()) == {"below"} and "mul_.Tensor" in found

    def test_not_writes_into_an_input(self) -> None:
        def fn(x: Any) -> Any:
            x.mul_(2)
            return x.sin() + 1

        found = by_operator(runs(fn, X.clone())[0])
        assert found["mul_.Tensor"] == ""
        assert found["sin"] == "below"

    def test_nor_a_copy_into_one(self) -> None:
        def fn(x: Any) -> Any:
            x.copy_(x.exp() @ x)
            return x.sin() + 1

        found = by_operator(runs(fn, X.clone())[0])
        assert found["copy_"] == ""
        assert found["sin"] == "below"

    def test_not_a_view_that_leaves_the_run(self) -> None:
        assert by_operator(runs(lambda x: (x.sin().t()[1:],), X)[0]) == {"sin": "below", "t": "", "slice.Tensor": ""}

    def test_not_views_of_an_input_that_are_written(self) -> None:
        """A view that autograd has not seen counts writes of its own."""
        graph = graph_of(lambda x: x[0].sin() * x.sum(), X).graph
        row = next(node for node in graph.nodes if node.target is torch.ops.aten.select.int)
        with graph.inserting_after(row):
            written = graph.call_function(torch.ops.aten.mul_.Tensor, (row, 2))
        written.meta["spec"] = row.meta["spec"]
        output: Any = graph.output_node().args[0]
        (run,) = runs_of(plan_of(graph), output).values()
        found = by_operator(run)
        assert (found["select.int"], found["mul_.Tensor"], found["sin"]) == ("", "", "below")


def test_the_text_says_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "make_run", lambda *of: lambda inputs: inputs)
    text = write_graph(graph_of(lambda x: x.sin().exp() + x.t(), X)).__source__  # type: ignore[attr-defined]
    assert "# sin = aten.sin(" in text and "add_.Tensor(" in text and "run(" in text
