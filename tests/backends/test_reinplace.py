"""Writes into what a graph itself made: in place with the backend "eager", and as in eager mode."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from torch import fx

from subclass_aot import aot_compile
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.backends.reinplace import plan_of
from subclass_aot.base import hooks
from subclass_aot.engine.compilers import BACKENDS
from subclass_aot.engine.compilers.fakes import solver_of
from subclass_aot.errors import MutationError
from tests.torches import TORCH

aten: Any = torch.ops.aten


def graphs_of(fn: Callable[..., Any], *args: torch.Tensor) -> tuple[str, ...]:
    """How forward and backward are run, in lines of Python."""
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    out = aot_compile(fn, fw_compiler=keep)(*args)
    out = out[0] if isinstance(out, tuple) else out
    if out.requires_grad:
        out.sum().backward()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(hooks, "make_run", None)
        return tuple(write_graph(graph).__source__ for graph in graphs)  # type: ignore[attr-defined]


def rows(x: Any) -> Any:
    out = torch.zeros(8, 3, dtype=x.dtype)
    for t in range(8):
        out[t] = x[t].sin()
    return out


def test_rows_are_written_in_place() -> None:
    forward, backward = graphs_of(rows, torch.randn(8, 3, requires_grad=True))
    assert not re.findall("scatter|aten_copy\\(", forward)
    assert len(re.findall(r"zeros\[\d\] = ", forward)) == 8
    assert not re.findall("scatter|aten_copy\\(", backward)
    assert backward.count("new_empty_strided(") == 1  # the gradient that comes in is copied once
    assert backward.count("select_backward(") == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: x.clone(),
        lambda x: x**1,
        lambda x: x.t(),
        lambda x: torch.cat([x, x]),
        lambda x: x.max(0),
        lambda x: torch.nn.functional.pad(x, (1, 1)),
        lambda x: x.add_(1),
        lambda x: x,
        lambda x: torch.empty(2, 2).fill_(3),
    ],
)
def test_one_operator_alone(function: Callable[[Any], Any]) -> None:
    """No plan is made for it where it makes new tensors."""
    x = torch.rand(2, 3)
    before = x.clone()
    expected, found = function(before), aot_compile(function)(x)
    torch.testing.assert_close([x, *found] if isinstance(found, tuple) else [x, found], [before, *expected]
                               if isinstance(expected, tuple) else [before, expected])  # fmt: skip
    for tensor in found if isinstance(found, tuple) else (found,):
        assert (tensor is x) == (expected is before)
        assert (tensor._base is x) == (getattr(expected, "_base", None) is before)


def cell(gates: Any, more: Any, h: Any) -> Any:
    """The gates of a GRU, as torch computes them."""
    a, b, c = (gates @ gates.t()).chunk(3, 1)
    x, y, z = more.chunk(3, 1)
    reset, update = a.add_(x).sigmoid_(), b.add_(y).sigmoid_()
    new = z.add(c.mul_(reset)).tanh_()
    return (h - new).mul_(update).add_(new)


def test_parts_are_computed_where_they_stand() -> None:
    args = torch.randn(6, 6), torch.randn(6, 6), torch.randn(6, 2)
    (forward,) = graphs_of(cell, *args)
    assert forward.count("aten_split") == 2 and not re.findall("scatter|copy_|slice\\(", forward), forward
    assert aot_compile(cell)(*args).equal(cell(*args))


def test_a_row_is_written_into_an_expanded_part() -> None:
    def program(x: Any) -> Any:
        y = x * 1
        v = torch.cat([y, y])[:3]
        for _ in range(3):
            y[0] = y[0]
        part = v[:1].expand(3, 3)
        part[0] = y[0]
        return y, v

    x = torch.rand(3, 3)
    expected, found = program(x), aot_compile(program)(x)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    "program",
    [
        lambda y: torch.slice_scatter(y, y[:2] * 2, 0, 2),
        lambda y: torch.slice_scatter(y, y[2:] * 2, 0, None, 2),
        lambda y: torch.slice_scatter(y, torch.ops.aten.slice.Tensor(y, 0, 2) * y[:2], 0, 2),
        lambda y: torch.slice_scatter(y, y[2:] * torch.ops.aten.slice.Tensor(y, 0, 2), 0, 2),
        lambda y: torch.slice_scatter(y, y[:2] * torch.ops.aten.slice.Tensor(y, 0, 1)[:2], 0, None, 2),
    ],
)
def test_slices_without_an_end(program: Any) -> None:
    x = torch.randn(4, 4)
    assert aot_compile(lambda x: program(x.exp()))(x).equal(program(x.exp()))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[:2].add_(x[1:3]),  # which torch computes of a copy, or refuses
        lambda x: x[1:3].mul_(x[1:3]),
        lambda x: x[0].add_(x[1]),
        lambda x: x[:, 1].sub_(x[:, 0]).exp_(),
        lambda x: x[::2].mul_(2).add_(x[1::2]),
        lambda x: x[-1].sigmoid_(),
        lambda x: x.t()[0].sigmoid_(),
        lambda x: x.unbind(0)[1].add_(x.unbind(0)[2]).mul_(x.unbind(0)[1]),
        lambda x: x.split(2)[0].copy_(x.split(2)[1] * 2),
        lambda x: x[:2].mul_(x[2:]).add_(x[2:]),
        lambda x: x[1:].mul_(x[:-1]),
        lambda x: x[:, :2].mul_(x[:, 2:]).sub_(x[:, :2]),
        lambda x: x[-2:].mul_(x[-4:-2]).mul_(x[-3:-1]),
        lambda x: x[::2].mul_(x[1::2]),
    ],
)
def test_writes_into_parts_of_what_the_graph_made(write: Any) -> None:
    def fn(x: Any) -> Any:
        y = x.exp()
        before = y.sum(0)
        seen = y[1:3] * 1
        write(y)
        return y.clone(), seen, before, y[0] + y[1]

    x = torch.randn(4, 4)
    try:
        expected = fn(x)
    except RuntimeError:  # parts that overlap
        return
    for got, wanted in zip(aot_compile(fn)(x), expected, strict=True):
        assert got.equal(wanted)


def test_results_are_tensors_of_their_own() -> None:
    def fn(x: Any) -> Any:
        y = x.exp()
        z = y.t()
        return y, z.t(), z.t().t(), x.t().t(), x.pow(1)

    x = torch.randn(2, 3)
    found = aot_compile(fn)(x)
    assert len({id(each) for each in (x, *found)}) == 6
    for got, expected in zip(found, fn(x), strict=True):
        assert got.equal(expected) and got.stride() == expected.stride()
    assert found[4].data_ptr() != x.data_ptr()


def test_a_copy_is_made_where_its_source_is_written() -> None:
    def fn(x: Any) -> Any:
        y = x.exp()
        z = y.pow(1)
        y.mul_(2)
        return z * y

    x = torch.randn(2, 3)
    assert aot_compile(fn)(x).equal(fn(x))


def columns(x: Any) -> Any:
    out = x.new_zeros(x.shape)
    for t in range(3):
        out[:, t] = x[:, t].sin()
    return out


def test_sizes_may_be_symbols() -> None:
    compiled = aot_compile(columns, dynamic=True)
    for rows_of_x in (4, 5):
        x = torch.randn(rows_of_x, 3, requires_grad=True)
        found = compiled(x)
        assert found.equal(columns(x))
        gradient = torch.autograd.grad(found.sin().sum(), x)[0]
        assert gradient.equal(torch.autograd.grad(columns(x).sin().sum(), x)[0])
    assert len(compiled._specializations) == 1
    graph = compiled._specializations.latest.graphs.forward
    assert "scatter" not in write_graph(graph).__source__  # type: ignore[attr-defined]


def elsewhere(x: Any) -> Any:
    out = torch.zeros(3, 3, dtype=x.dtype)
    out.t()[0] = x[0]
    out[1][1:] = x[1, 1:]
    out.view(-1)[8:] = x[2, 2]
    out.diagonal().copy_(x[0])
    out[torch.tensor([0, 2])] = x[:2]
    return out.sin()


def test_writes_through_views() -> None:
    (forward,) = graphs_of(elsewhere, torch.randn(3, 3))
    assert "scatter" not in forward and "index_put(" not in forward
    assert "index_put_(" in forward


def kept_row(x: Any) -> Any:
    out = x.sin()
    row = out[0]
    before = row.exp()  # saved for backward
    out[0] = 2.0
    return out * 3, before


def kept_result(x: Any) -> Any:
    out = torch.zeros(3, 3, dtype=x.dtype)
    out[0] = x[0]
    old = out.clone()
    out[1] = x[1]
    return out, old


def saved(x: Any) -> Any:
    out = x.exp()  # backward reads it
    other = out.clone()
    other[0] = 0
    kept = other.sin().tanh()  # backward reads this, too
    last = kept.clone()
    last[1] = 0.5 * other[1]
    return last.tanh()


def overlapping(x: Any) -> Any:
    out = x * 2
    out[0] = out[1]
    out[:, 0] = out[:, 1]
    return out


def into_the_input(x: Any) -> Any:
    y = x * 1
    with torch.no_grad():
        x.detach()[0] = y[1]
    y[2] = x[0]
    return y


def another_dtype(x: Any) -> Any:
    out = torch.zeros(3, 3, dtype=torch.float32)
    out[0] = x[0]
    out[1] = (x[1] > 0).to(torch.int32)
    return out


def broadcast(x: Any) -> Any:
    out = torch.zeros(2, 3, 3, dtype=x.dtype)
    out[:] = x
    out[0] = x[0]
    out[:, 1:, 1] = x[0, 0]
    return out


def folded(x: Any) -> Any:
    out = torch.zeros(3, 1, dtype=x.dtype)
    wide = out.expand(3, 3)
    out[0] = x[0, 0]
    return wide + x


def one_of_two_views(x: Any) -> Any:
    out = x.clone()
    a, b = out[0], out[1]
    a.mul_(2)
    c = b * 1
    b.copy_(a)
    return out, a, c


def shifted(x: Any) -> Any:
    out = x * 1
    return torch.slice_scatter(out, out[:-1], 0, 1)


def row_of_an_expanded(x: Any) -> Any:
    return torch.select_scatter(x.sin()[:1].expand(3, 3), x[1], 0, 1) * 1


def later_than_it_stands(x: Any) -> Any:
    out = x.sin()
    row = aten.copy(out[1], out[0])
    changed = torch.select_scatter(out, x[1], 0, 0)
    return torch.select_scatter(torch.zeros(3, 3, dtype=x.dtype), row, 0, 1), changed.exp()


def masks(x: Any) -> Any:
    out = torch.ones(3, 3, dtype=x.dtype)
    out.masked_fill_(x > 0, 2.0)
    out.index_fill_(0, torch.tensor([1]), 5.0)
    out.scatter_(1, torch.tensor([[0], [1], [2]]), x[:, :1])
    out.index_add_(0, torch.tensor([0, 0]), x[:2])
    return out


PROGRAMS = (
    rows, elsewhere, kept_row, kept_result, saved, overlapping, another_dtype, broadcast, folded, one_of_two_views,
    masks, into_the_input, shifted,
    *([row_of_an_expanded] if TORCH >= (2, 13) else []),  # before, torch writes all rows
)  # fmt: skip


def observed(run: Callable[..., Any], x: torch.Tensor, grad: bool) -> Any:
    """Results, the gradient, what was written, and which results share memory."""
    argument = x.clone().requires_grad_(grad)
    out = run(argument)
    out = out if isinstance(out, tuple) else (out,)
    shared = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in out] for b in out]
    wanted = [o.sin().sum() for o in out if o.requires_grad]
    gradient = torch.autograd.grad(sum(wanted), argument, allow_unused=True)[0] if wanted else None
    for o in out:
        if not o.requires_grad:
            o.add_(1)  # and what it shares
    return [o.detach() for o in out], argument.detach(), gradient, shared


def assert_as_eager(fn: Callable[..., Any], x: torch.Tensor, grad: bool) -> None:
    """To the last bit what the graph computes without writes, and what eager does but for the order of sums; twice."""
    as_it_is = aot_compile(fn, fw_compiler=lambda graph, _: graph.forward)
    compiled = aot_compile(fn)
    for _ in range(2):
        found = observed(compiled, x, grad)
        torch.testing.assert_close(found, observed(as_it_is, x, grad), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(found, observed(fn, x, grad), rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [False, True])
def test_as_in_eager(program: Any, grad: bool) -> None:
    torch.manual_seed(0)
    assert_as_eager(program, torch.randn(8 if program is rows else 3, 3, dtype=torch.float64), grad)


def test_what_is_copied_later_than_it_stands_is_not_written_before() -> None:
    assert_as_eager(later_than_it_stands, torch.randn(3, 3, dtype=torch.float64), grad=False)


STATEMENTS = (
    "{v} = torch.zeros(3, 3, dtype=torch.float64)",
    "{v} = torch.zeros_like({a})", "{v} = {a} * 2", "{v} = {a} * {b}", "{v} = {a}.tanh()",
    "{v} = {a}.clone()", "{v} = {a}.exp()", "{v} = {a} + {b}", "{v} = {a}.detach()", "{v} = torch.cat([{a}, {b}])[:3]",
    "{v} = {a}[1:]", "{v} = {a}.t()", "{v} = {a}[0]", "{v} = {a}[:, 1]", "{v} = {a}.view(-1)", "{v} = {a}.diagonal()",
    "{v} = {a}[:1].expand(3, 3)", "{v} = {a}.reshape(-1)", "{v} = {a}.unsqueeze(0)", "{v}, {w} = {a}.split([1, 2])",
    "{a}[0] = {b}[0]", "{a}[0] = {b}[-1]", "{a}[1:] = {b}[1:]", "{a}[1:] = {b}[:-1]", "{a}[:, 0] = {b}[:, 1]",
    "{a}[1:][0] = {b}[0]", "{a}[0, 1:] = {b}[0, 1:]", "{a}.t()[1] = {b}[1]", "{a}.view(-1)[2:] = 3", "{a}.copy_({b})",
    "{a}[::2] = {b}[::2]", "{a}.diagonal().copy_({b}.diagonal())", "{a}[0].mul_(2)", "{a}.zero_()", "{a}[1].fill_(2)",
    "{a}[torch.tensor([1, 0])] = {b}[:2]", "{a}.masked_fill_({b} > 0, 0.5)", "{a}.index_fill_(0, torch.tensor([1]), 2)",
    "{a}.scatter_(0, torch.zeros(1, 3, dtype=torch.long), {b}[:1])", "{a}.index_add_(0, torch.tensor([0, 0]), {b}[:2])",
    "{v} = torch.select_scatter({a}, {b}[1], 0, 0)", "{v} = torch.slice_scatter({a}, {b}[:-1], 0, 1)",
    "{a}.index_copy_(0, torch.tensor([2]), {b}[:1])", "{a}.add_({b})",
)  # fmt: skip
"""Lines of programs. `{a}` and `{b}` were made by the program, or are computed from its input."""


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A program that eager runs, as the text of a function; drawn by running it."""
    names, lines = ["y"], ["y = x * 1"]
    for i in range(draw(st.integers(2, 12))):
        statement = draw(st.sampled_from(STATEMENTS))
        new = [f"v{i}", f"w{i}"]
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        line = statement.format(v=new[0], w=new[1], a=a, b=b)
        apart = statement.format(v=new[0], w=new[1], a=a, b=f"{b}.clone()")
        if runs([*lines, line]) and runs([*lines, apart]) and same_values([*lines, line], [*lines, apart], names):
            lines.append(line)
            names += [n for n, mark in zip(new, ("{v}", "{w}"), strict=True) if mark in statement]
    results = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return text_of([*lines, f"return {', '.join(results)},"])


def same_values(lines: list[str], others: list[str], names: list[str]) -> bool:
    """Whether two programs compute the same; a write that overlaps what it reads is nobody's to define."""
    x, ends = torch.randn(3, 3, dtype=torch.float64), [f"return {', '.join(names)},"]
    one, other = (function_of(text_of([*program, *ends]))(x.clone()) for program in (lines, others))
    return all(a.equal(b) for a, b in zip(one, other, strict=True))


def text_of(lines: list[str]) -> str:
    return "def program(x):\n    " + "\n    ".join(lines)


def runs(lines: list[str]) -> bool:
    try:
        for grad in (False, True):
            x = torch.randn(3, 3, dtype=torch.float64, requires_grad=grad)
            out = function_of(text_of([*lines, "return y,"]))(x)
            if grad and out[0].requires_grad:
                out[0].sum().backward()
    except (RuntimeError, IndexError, TypeError, UserWarning):
        return False
    return True


def function_of(text: str) -> Any:
    namespace = {"torch": torch}
    exec(text, namespace)
    return namespace["program"]


@given(programs(), st.booleans())
@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
def test_random_writes(text: str, grad: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 3, dtype=torch.float64)
    fn = function_of(text)
    try:
        assert_as_eager(fn, x, grad)
    except MutationError:  # such as a write into an expanded tensor, which eager lets pass where it is an index
        reject()
    except RuntimeError:
        with pytest.raises(RuntimeError):  # what eager refuses, such as a write into one of several views
            observed(fn, x, grad)


@given(programs())
@settings(max_examples=50, suppress_health_check=list(HealthCheck), deadline=None)
def test_nothing_is_assumed_of_symbolic_sizes(text: str) -> None:
    guards: list[tuple[int, int]] = []
    eager = BACKENDS["eager"]

    def compile(graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> Any:
        solver = solver_of(graph)
        before = 0 if solver is None else len(solver.guards)
        run = eager.compile(graph, inputs, is_backward)
        guards.append((before, 0 if solver is None else len(solver.guards)))
        return run

    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    noting = dataclasses.replace(eager, compile=compile)
    try:
        aot_compile(function_of(text), fw_compiler=noting, dynamic=True, lazy_backward=False)(x)
    except (MutationError, RuntimeError):
        reject()
    assert all(before == after for before, after in guards), "backward is compiled after the guards are written"


def test_a_result_has_memory_of_its_own() -> None:
    result = aot_compile(lambda x: torch.select_scatter(x.sin()[1], x[0, 0], 0, 0))(torch.randn(3, 3))
    assert not result._is_view()


def polynomial(x: Any) -> Any:
    return 1 + x * (2 + x * 3)


def test_pointwise_operators_write_over_what_dies_with_them() -> None:
    forward, backward = graphs_of(polynomial, torch.randn(4, 3, requires_grad=True))
    assert forward.count("aten_mul_Tensor(") == 2  # of the input, and of what is saved: new memory
    assert forward.count("aten_add__Tensor(") == 2
    assert "aten_add_Tensor(" not in forward
    assert backward.count("aten_add__Tensor(") == 1


def test_a_factor_is_written_over_where_the_first_is_not_free() -> None:
    (forward,) = graphs_of(lambda x: x * (x - 1), torch.randn(4, 3))
    assert "aten_mul__Tensor(sub, primals_1)" in forward


PERSISTING: dict[str, Callable[[torch.Tensor], Any]] = {
    "what is returned": lambda x: (y := x * 2, y + 1),
    "what a view of is returned": lambda x: ((y := x * 2)[0], y + 1),
    "what is read later": lambda x: (y := x * 2).exp() + y,
    "an input": lambda x: x.exp(),
    "a part of it": lambda x: (y := x * 2) + y[0],
    "itself turned": lambda x: (y := x * 2) + y.t(),
    "itself": lambda x: (y := x * 2) * y,
    "another dtype": lambda x: (x > 0) + x,
    "a smaller one": lambda x: (x.sum(0) * 2) + x,
    "an expanded one": lambda x: (x.sum(0) * 2).expand(3, 3) + 1,
    "other strides": lambda x: (x * 2).t() + x * 3,
    "twice negated": lambda x: (x * 2).neg().neg(),
    "a difference": lambda x: x - x.exp(),
    "a quotient": lambda x: x / x.exp(),
    "parts of one": lambda x: [a + b for a, b in zip((x * 2).split(1), (x * 3).split(1), strict=True)],
}


@pytest.mark.parametrize("name", PERSISTING)
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_needed_is_not_written_over(name: str, grad: bool) -> None:
    program = PERSISTING[name]

    def listed(x: Any) -> Any:
        out = program(x * 1)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    assert_as_eager(listed, torch.randn(3, 3, dtype=torch.float64), grad)


def test_a_graph_is_not_changed() -> None:
    graph = fx.symbolic_trace(lambda x: aten.add.Tensor(x, x)).graph
    before = str(graph)
    plan_of(graph)
    assert str(graph) == before
