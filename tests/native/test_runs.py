"""Operators that are called in a row in C++: as one by one in Python, in all that a program can see."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from subclass_aot import MetaTensor, aot_compile
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.base import hooks
from tests.backends.test_runs import graph_of
from tests.fuzz.oracle import check_program
from tests.fuzz.programs import Program, programs
from tests.native.places import run_natively

Graph = Callable[[list[Any]], Any]
aten: Any = torch.ops.aten


def both(graph: fx.GraphModule, native: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Graph]:
    """What runs a graph in Python, and what runs it in C++."""
    monkeypatch.setattr(hooks, "make_run", None)
    python = write_graph(graph)
    monkeypatch.setattr(hooks, "make_run", native.Run)
    run = write_graph(graph)
    assert "run" in run.__source__ and "run" not in python.__source__.replace("Runs", "")  # type: ignore[attr-defined]
    return python, run


def seen(results: Any) -> list[Any]:
    return [
        (x.shape, x.stride(), x.storage_offset(), x.dtype, x._is_view(), x.is_inference(), x.tolist())
        if isinstance(x, torch.Tensor)
        else x
        for x in results
    ]


X, Y = torch.rand(3, 4) + 0.5, torch.rand(3, 4) + 0.5
INDEX = torch.tensor([2, 0])

PROGRAMS: dict[str, Callable[..., Any]] = {
    "numbers": lambda x, y: (x * 2, x + 2.5, x + True, (x - math.inf).exp(), x.pow(2), 3 - y, y.clamp(0.6), y / 3),
    "integers": lambda x, y: ((x * 4).long() // 2, (x * 3).int() * 2.5, (x > 1) & (y > 1), x.long() + 1),
    "complex": lambda x, y: (torch.complex(x, y) * 2j, torch.complex(x, y).abs(), torch.complex(x, y) + (1 + 2j)),
    "options": lambda x, y: (
        torch.full((2, 3), math.pi, dtype=torch.float64),
        x.to(torch.bfloat16) * 2,
        torch.arange(4, dtype=torch.int32) + 1,
        torch.empty_like(x, dtype=torch.float64).zero_() + 1,
        x[None, None].clone(memory_format=torch.channels_last) * 2,
    ),
    "lists": lambda x, y: (torch.cat([x, y, x.sin()], 1), torch.stack([x, y]).sum(0), *(2 * x).split([1, 3], 1)),
    "indices": lambda x, y: (x[INDEX].sin(), (x * y)[:, INDEX], torch.where(x > 1, y, 0.25), x.gather(0, INDEX[None])),
    "several results": lambda x, y: (
        *torch.var_mean(x * 2, 1),
        *(x * y).max(1),
        torch.nn.functional.layer_norm(x * y, (4,)),
        *torch.linalg.qr(x @ y.t()),
    ),
    "views": lambda x, y: ((x * y).t()[1:], x.sin().view(-1)[2:], (x + y).unbind(1)[1], x.t(), y.expand(2, *y.shape)),
    "a view and what it views": lambda x, y: (lambda z: (z, z[1:], z.t()))(x * y + 1),
    "writes": lambda x, y: (lambda z: (z[0].add_(2), z[:, 1].copy_(y[:, 0]), z)[2])(x * y + 1),
    "scatter": lambda x, y: (x.clone().index_put_((INDEX,), y[:2]), (y * 2).masked_fill(x > 1, 0.0)),
    "draws": lambda x, y: (torch.rand_like(x) + x, torch.nn.functional.dropout(x * 2, 0.5), torch.randperm(4) + 1),
    "products": lambda x, y: (
        torch.addmm(x[0], x, y.t() @ y),
        torch.nn.functional.linear(x * 2, y, y[:, 0]),
        x @ y.t(),
    ),
    "layers": lambda x, y: (
        torch.nn.functional.conv1d(x[None], y[None, :, :2]).relu(),
        torch.nn.functional.scaled_dot_product_attention(x[None] * 2, y[None], y[None]),
        torch.nn.functional.gelu(x, approximate="tanh").softmax(-1),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_python(name: str, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(PROGRAMS[name], X.clone(), Y.clone())
    inputs = [X.clone(), Y.clone()]
    inputs += [INDEX.clone()] * (len(graph.graph.find_nodes(op="placeholder")) - len(inputs))
    functions = both(graph, built, monkeypatch)
    for grad in (False, True):
        found = []
        for function in functions:
            torch.manual_seed(3)
            given = list(inputs)
            with torch.set_grad_enabled(grad):
                found.append(seen(function(given)))
            assert given == []
        assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_are_symbols(name: str, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built)
    compiled = aot_compile(PROGRAMS[name], dynamic=True)
    for x, y in ((X, Y), (torch.rand(5, 4) + 0.5, torch.rand(5, 4) + 0.5)):
        results = []
        for function in (PROGRAMS[name], compiled):
            torch.manual_seed(3)
            results.append(function(x.clone(), y.clone()))
        torch.testing.assert_close(*map(list, results))


class TestWhatAutogradNotes:
    def test_a_written_input_counts_it(self, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        def fn(x: Any) -> Any:
            x[1:].mul_(2)
            x.add_(1)
            return x.sin() * 2

        for native in (None, built):
            run_natively(monkeypatch, native)
            x = X.clone()
            saved = (x * torch.ones(3, 4, requires_grad=True)).sum()
            aot_compile(fn)(x)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                saved.backward()

    def test_a_write_into_a_result_is_one_into_what_it_views(
        self, built: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_natively(monkeypatch, built)
        x = X.clone().requires_grad_()
        out = aot_compile(lambda x: x.exp().t()[1:])(x)
        out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()

    def test_second_derivatives(self, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        def second(fn: Any) -> torch.Tensor:
            x = X.clone().requires_grad_()
            (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
            return torch.autograd.grad(first.square().sum(), x)[0]

        def fn(x: Any) -> Any:
            return ((x * 2).sin().exp() * x).t()

        run_natively(monkeypatch, built)
        torch.testing.assert_close(second(aot_compile(fn, double_backward=True)), second(fn))

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script")
    def test_transforms_and_forward_mode(self, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        python, run = both(graph_of(lambda x: ((x * 2).sin() * x).sum(0), X), built, monkeypatch)
        for transform in (
            lambda f: torch.func.vmap(f)(torch.stack([X, Y])),
            lambda f: torch.func.grad(lambda x: f(x).sum())(X),
            lambda f: torch.func.jvp(f, (X,), (Y,))[1],
            lambda f: torch.func.jacrev(f)(X),
        ):
            results = [transform(lambda x, f=f: f([x])[0]) for f in (python, run)]  # type: ignore[misc]
            assert torch.equal(*results)
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            tangents = [
                torch.autograd.forward_ad.unpack_dual(f([torch.autograd.forward_ad.make_dual(X, Y)])[0]).tangent
                for f in (python, run)
            ]
        assert tangents[0] is not None and torch.equal(tangents[0], tangents[1])  # type: ignore[arg-type]


class Noting(TorchDispatchMode):
    """Notes each operator, and what numbers it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.noted.append((str(func), [a.shape if isinstance(a, torch.Tensor) else a for a in args], kwargs))
        return func(*args, **(kwargs or {}))


def test_modes_see_each_operator(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numbers", "lists", "writes", "products"):
        noted = []
        for function in both(graph_of(PROGRAMS[name], X.clone(), Y.clone()), built, monkeypatch):
            with torch.no_grad(), Noting() as mode:
                function([X, Y])
            noted.append(repr(mode.noted).replace("{}", "None"))
        assert len(noted[1]) > 100 and noted[0].replace("aten.detach.default", "") == noted[1]


def test_tensors_without_data(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in both(graph_of(PROGRAMS["views"], X.clone(), Y.clone()), built, monkeypatch):
        results = function([MetaTensor.like(X), MetaTensor.like(Y)])
        assert [type(x) for x in results] == [MetaTensor] * len(results)
        with torch._subclasses.FakeTensorMode() as mode:
            results = function([mode.from_tensor(X), mode.from_tensor(Y)])
        assert {type(x).__name__ for x in results} == {"FakeTensor"}


def test_what_is_read_for_the_last_time_is_let_go(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs, too. A mode sees how many tensors are alive at each operator."""
    graph = graph_of(lambda x: (x.sin().cos().exp() @ x.new_ones(4, 4)).sin().sum(), X)
    alive: list[list[int]] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            storage = out.untyped_storage()
            held.append(weakref.ref(storage))
            alive[-1].append(sum(ref() is not None for ref in [*held, given]))
            return out

    for function in both(graph, built, monkeypatch):
        held: list[Any] = []
        alive.append([])
        x = X.clone()
        given = weakref.ref(x)
        inputs = [x]
        del x
        with torch.no_grad(), Counting():
            function(inputs)
        assert given() is None
    assert alive[1] and all(b <= a for a, b in zip(*alive, strict=True))


def test_nothing_leaks(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = both(graph_of(PROGRAMS["several results"], X.clone(), Y.clone()), built, monkeypatch)
    for _ in range(3):
        results = run([X, Y])
        kept = [weakref.ref(x) for x in results]
        del results
        assert all(ref() is None for ref in kept)
    refs = weakref.ref(run)
    del run
    gc.collect()
    assert refs() is None


class TestErrors:
    def test_the_operator_raises(self, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        for function in both(graph_of(lambda x: (x.sin() @ x).cos(), torch.ones(4, 4)), built, monkeypatch):
            inputs = [torch.ones(3, 4)]
            with pytest.raises(RuntimeError, match="cannot be multiplied"):
                function(inputs)

    def test_an_index_out_of_range(self, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = graph_of(lambda x, i: x[i].sin() * 2, X, INDEX)
        for function in both(graph, built, monkeypatch):
            with pytest.raises(IndexError, match="out of bounds"):
                function([X, torch.tensor([7, 0])])

    @pytest.mark.parametrize("given", [[X], [X, Y, Y], (X, Y), [X, "Y"]])
    def test_other_inputs_are_refused(self, given: Any, built: ModuleType) -> None:
        steps = (("aten::add", "Tensor", (("last", 0), ("last", 1), ("constant", 1)), (2,), "below"),)
        run = built.Run(2, 3, steps, (2,))
        assert torch.equal(run([X, Y]), X + Y)
        with pytest.raises(TypeError, match="a run "):
            run(given)

    @pytest.mark.parametrize(
        "step",
        [
            ("aten::nowhere", "", (), (0,), ""),
            ("aten::sin", "", (), (0,), ""),
            ("aten::sin", "", (("constant", "no tensor"),), (0,), ""),
            ("aten::sin", ""),
            ("aten::sin", "", (("place", 1),), (0,), ""),
            ("aten::sin", "", (("place", 0),), (1,), ""),
            ("aten::cat", "", (("list", (("place", 0), ("last", 7))), ("constant", 0)), (0,), ""),
        ],
    )
    def test_steps_that_are_none(self, step: Any, built: ModuleType) -> None:
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            built.Run(1, 1, (step,), (0,))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer that interrupts")
def test_an_interruption_comes_between_operators(built: ModuleType) -> None:
    steps = [("aten::mm", "", (("place", 0), ("place", 0)), (0,), "") for _ in range(400)]
    run = built.Run(1, 1, tuple(steps), (0,))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    begin = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                run([torch.zeros(768, 768)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.perf_counter() - begin < 60


def test_threads_run_the_same_at_once(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    python, run = both(graph_of(PROGRAMS["writes"], X.clone(), Y.clone()), built, monkeypatch)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = torch.rand(3, 4, generator=torch.Generator().manual_seed(seed))
        expected = python([x, Y])[0]
        for _ in range(200):
            if not torch.equal(run([x, Y])[0], expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(program=programs(everything=True))
def test_random_programs(built: ModuleType, program: Program) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_natively(monkeypatch, built)
        check_program(program)


def test_a_kernel_that_gives_nothing_for_a_gradient(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """An undefined tensor is None in Python."""
    run_natively(monkeypatch, built)
    weight = torch.rand(2, 3, 3)
    x = torch.rand(1, 3, 8, requires_grad=True)

    def fn(x: Any, w: Any) -> Any:
        return torch.nn.functional.conv1d(x * 2, w).sin() * 2

    aot_compile(fn)(x, weight).sum().backward()
    expected = torch.autograd.grad(fn(x, weight).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
