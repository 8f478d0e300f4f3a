"""What a call keeps alive, and what it checks before it uses what it kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import dense_leaves


@pytest.fixture(scope="module")
def _imported() -> None:
    aot_compile(torch.sin)(torch.ones(1))  # a first call imports parts of torch, whose caught errors keep its frames
    gc.collect()


@pytest.fixture
def no_collector(_imported: None) -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def two(*size: int) -> Any:
    return TwoTensor(torch.rand(size), torch.rand(size))


MAKERS = {"dense": torch.rand, "wrapper": two, "nested": lambda *size: TwoTensor(two(*size), torch.rand(size))}


@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_is_kept_after_a_call(kind: str, no_collector: None) -> None:
    """No reference cycle: inputs, results and activations go without the cycle collector."""
    compiled = aot_compile(lambda x, w: ((x @ w).sin().exp(), x.t(), x))
    for _ in range(2):  # the call that compiles, and one that does not
        x, w = MAKERS[kind](3, 3), MAKERS[kind](3, 3).requires_grad_()
        results = compiled(x, w)
        alive = [weakref.ref(t) for t in (x, w, *results[:2], *dense_leaves(x), *dense_leaves(w))]
        if isinstance(results[0].grad_fn, torch.autograd.function.BackwardCFunction):  # no other has weak ones
            alive.append(weakref.ref(results[0].grad_fn))
        del x, w, results
        assert [r() for r in alive] == [None] * len(alive)


class Cache:
    last: Any = None


def test_objects_are_not_kept_after_a_call(no_collector: None) -> None:
    def program(x: Any, cache: Any) -> Any:
        cache.last, cache.all = x * 2, [*getattr(cache, "all", []), x]
        return cache, x

    compiled = aot_compile(program)
    for size in (2, 2, 3):  # a call that compiles, one that does not, and one with a symbol
        cache, x = Cache(), torch.ones(size)
        result = compiled(x, cache)
        alive = [weakref.ref(t) for t in (x, cache, cache.last)]
        del cache, x, result
        assert [r() for r in alive] == [None] * 3


@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_is_kept_after_backward(kind: str, no_collector: None) -> None:
    compiled = aot_compile(lambda x: (x * x).sin())
    for _ in range(2):
        x = MAKERS[kind](3).requires_grad_()
        out = compiled(x)
        out.backward(torch.ones_like(out))
        gradient = weakref.ref(x.grad)
        alive = weakref.ref(x), weakref.ref(out)
        del x, out
        assert [r() for r in alive] == [None, None] and gradient() is None


@pytest.mark.parametrize("fails_in", ["", "forward", "backward"])
@pytest.mark.parametrize("kind", MAKERS)
def test_tangents_and_gradients_are_not_kept(kind: str, fails_in: str, no_collector: None) -> None:
    """Nor inputs and results; of two results, in one backward and of one alone, and where a graph fails."""
    compiled = aot_compile(lambda x: ((y := x * x), y.sin()), fw_compiler=Failing(fails_in))
    for used in (2, 1):
        x = MAKERS[kind](3).requires_grad_()
        tangents = [MAKERS[kind](3) for _ in range(used)]
        alive = [weakref.ref(t) for y in (x, *tangents) for t in (y, *dense_leaves(y))]
        try:
            out = compiled(x)
            alive += [weakref.ref(t) for y in out for t in (y, *dense_leaves(y.detach()))]
            torch.autograd.backward(out[:used], tangents)
        except ZeroDivisionError:
            assert fails_in
        else:
            assert not fails_in
            alive += [weakref.ref(t) for t in (x.grad, *dense_leaves(x.grad))]
        out = None
        del x, tangents
        assert [r() for r in alive] == [None] * len(alive)


@pytest.mark.parametrize("kind", MAKERS)
def test_parts_of_backward_that_save_results_of_each_other_do_not_keep_each_other(
    kind: str, no_collector: None
) -> None:
    def program(a: Any, b: Any) -> Any:
        y, z = a.exp(), b.exp()
        return y * z.detach(), z * y.detach(), y, z

    compiled = aot_compile(program)
    for used in (0, 1, 2):
        given = [MAKERS[kind](3).requires_grad_() for _ in range(2)]
        results = compiled(*given)
        alive = [weakref.ref(t) for x in (*given, *results) for t in (x, *dense_leaves(x.detach()))]
        for result in results[:used]:
            result.backward(torch.ones_like(result.detach()))
        result = None
        del given, results
        assert [r() for r in alive] == [None] * len(alive)


class Failing:
    """A compiler of whose two graphs the one that is named raises when it runs."""

    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in
        self.phases = iter(("forward", "backward"))

    def __call__(self, graph: Any, inputs: Any) -> Any:
        phase = next(self.phases)

        def run(*inputs: Any) -> Any:
            if phase == self.fails_in:
                raise ZeroDivisionError("on purpose")
            return graph.forward(*inputs)

        return run


def test_backward_frees_activations(no_collector: None) -> None:
    kept: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            out = graph(*inputs)
            kept[:] = [weakref.ref(t) for t in out[1:]]
            return out

        return run

    x = torch.rand(5, requires_grad=True)
    out = aot_compile(lambda x: x.exp().sin().sum(), fw_compiler=compiler, bw_compiler="eager")(x)
    assert kept and all(r() is not None for r in kept)
    out.backward()
    assert all(r() is None for r in kept)


def test_a_failed_trace_keeps_nothing(no_collector: None) -> None:
    compiled = aot_compile(lambda x: x.sin().nonzero())
    x = two(3)
    try:
        compiled(x)
    except NotImplementedError:
        raise AssertionError from None
    except Exception:
        pass
    ref = weakref.ref(x)
    del x
    assert ref() is None


class Watched:
    """A compiler whose graphs note, by weak reference, everything that forward and backward compute.

    Args:
        fails_in: "forward" or "backward", where running the graph ends in an error.
    """

    def __init__(self, fails_in: str = "") -> None:
        self.fails_in = fails_in
        self.made: list[weakref.ref[Any]] = []
        self.phases = iter(("forward", "backward"))

    def __call__(self, graph: Any, inputs: Any) -> Any:
        phase = next(self.phases)

        def run(*inputs: Any) -> Any:
            given = {id(t) for t in inputs}
            out = graph.forward(*inputs)
            self.made += [weakref.ref(t) for t in out if t is not None and id(t) not in given]
            if phase == self.fails_in:
                raise ZeroDivisionError("on purpose")
            return out

        return run

    def alive(self) -> int:
        return sum(r() is not None for r in self.made)


class Weighted(torch.nn.Module):
    """Trainable and frozen weights of one kind, and a buffer that is written."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.trained = torch.nn.Parameter(make(3, 3))
        self.frozen = torch.nn.Parameter(make(3, 3), requires_grad=False)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.count.add_(1)
        return ((x @ self.trained).exp() * self.frozen).sin()


def fails(call: Any, x: Any) -> bool:
    try:
        call(x)
    except ZeroDivisionError:
        return True
    return False


USES = {
    "forward only": lambda out: None,
    "backward": lambda out: out.backward(torch.ones_like(out)),
    "retain_graph": lambda out: [out.backward(torch.ones_like(out), retain_graph=True) for _ in range(2)],
    "retain_graph, then not": lambda out: [out.backward(torch.ones_like(out), retain_graph=k) for k in (True, False)],
}


@pytest.mark.parametrize("fails_in", ["", "forward", "backward"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("use", USES)
def test_activations_go_with_the_result(use: str, kind: str, fails_in: str, no_collector: None) -> None:
    """However a call and its backward end, nothing that they computed outlives results and gradients."""
    watched = Watched(fails_in)
    module = Weighted(MAKERS[kind])
    compiled = aot_compile(module, fw_compiler=watched)
    for _ in range(2):
        x = MAKERS[kind](3, 3)
        held = [weakref.ref(t) for t in (x, *dense_leaves(x))]
        assert fails(lambda x: USES[use](compiled(x)), x) == (
            fails_in == "forward" or (fails_in == "backward" and use != "forward only")
        )
        del x
        module.trained.grad = None
        assert watched.made and watched.alive() == 0
        assert [r() for r in held] == [None] * len(held)


@pytest.mark.parametrize("kind", MAKERS)
def test_activations_stay_as_long_as_they_are_needed(kind: str, no_collector: None) -> None:
    watched = Watched()
    module = Weighted(MAKERS[kind])
    out = aot_compile(module, fw_compiler=watched)(MAKERS[kind](3, 3))
    waiting = watched.alive()
    out.backward(torch.ones_like(out), retain_graph=True)
    module.trained.grad = None
    assert watched.alive() == waiting > len(dense_leaves(out))
    out.backward(torch.ones_like(out))
    module.trained.grad = None
    assert watched.alive() == len(dense_leaves(out)), "the leaves of the result, and nothing else"


def test_a_dropped_module_is_freed_with_its_compiled_function(no_collector: None) -> None:
    module = Weighted(two)
    compiled = aot_compile(module)
    out = compiled(two(3, 3))
    out.backward(torch.ones_like(out))
    alive = [weakref.ref(t) for t in (module, module.trained, module.frozen, *dense_leaves(module.frozen))]
    del module, compiled, out
    assert [r() for r in alive] == [None] * len(alive)


# Each: what is compiled, and what is written between forward and backward; eager says whether that is an error.
WRITES: dict[str, tuple[Any, Any]] = {
    "saved input": (lambda p, q: p * q, lambda p, q, out: p.mul_(2)),
    "input that is not saved": (lambda p, q: p + q, lambda p, q, out: p.mul_(2)),
    "view of a saved input": (lambda p, q: p * q, lambda p, q, out: p[0].zero_()),
    "saved output": (lambda p, q: (p * q).exp(), lambda p, q, out: out.mul_(2)),
    "view of a saved output": (lambda p, q: (p * q).exp(), lambda p, q, out: out.view(-1)[1:].zero_()),
    "output that is not saved": (lambda p, q: p * 2 + q, lambda p, q, out: out.mul_(2)),
    "detached input": (lambda p, q: p * q, lambda p, q, out: p.detach().mul_(2)),
    "input of a view": (lambda p, q: p.t() * q.t(), lambda p, q, out: q.zero_()),
    "copy of an input": (lambda p, q: p.clone() * q.clone(), lambda p, q, out: p.mul_(2)),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("write", WRITES)
def test_writes_between_forward_and_backward(write: str, kind: str) -> None:
    program, change = WRITES[write]
    outcomes = []
    for call in (program, aot_compile(program)):
        torch.manual_seed(3)
        p, q = (MAKERS[kind](3, 3).requires_grad_() for _ in range(2))
        out = call(p, q)
        with torch.no_grad():
            change(p, q, out)
        try:
            out.backward(torch.ones_like(out))
            outcomes.append(repr(p.grad))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            outcomes.append("error")
    assert outcomes[0] == outcomes[1]


def test_a_wrapper_output_that_is_written() -> None:
    """The activation that is saved is a leaf of the output; a write through the wrapper is seen all the same."""
    for change in (lambda out: out.mul_(2), lambda out: out.a.mul_(2), lambda out: out.detach().zero_()):
        x = two(3).requires_grad_()
        out = aot_compile(lambda x: x.exp())(x)
        with torch.no_grad():
            change(out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward(torch.ones_like(out))


def test_the_optimizer_may_step_between_calls() -> None:
    w = two(3, 3).requires_grad_()
    compiled = aot_compile(lambda x, w: (x @ w).sin().sum())
    x = torch.rand(2, 3)
    losses = []
    for _ in range(3):
        loss = compiled(x, w)
        w.grad = None
        loss.backward(torch.ones_like(loss))
        with torch.no_grad():
            w.sub_(w.grad * 0.1)
        losses.append(loss.a.item())
    assert losses[0] > losses[1] > losses[2] and not compiled.recompiles
