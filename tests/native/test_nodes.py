"""The node of autograd's graph for a call with gradients, in C++: it does what `autograd.Function` does."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import distributed
from torch._dynamo import compiled_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import TwoTensor, aot_compile
from tests.native.both_ways import outcome
from tests.native.places import run_natively

Compiled = Callable[..., Any]


def two(*size: int, seed: int = 0, cls: Any = TwoTensor) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return cls(torch.randn(size, generator=generator), torch.randn(size, generator=generator)).requires_grad_()


def dense(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def both(built: ModuleType, monkeypatch: pytest.MonkeyPatch, program: Callable[[], Any]) -> Any:
    """Checks that a program ends the same with the node and with `autograd.Function`; gives how."""
    run_natively(monkeypatch, None)
    in_python = outcome(program)
    run_natively(monkeypatch, built, "nodes")
    in_cpp = outcome(program)
    assert in_cpp == in_python
    return in_cpp


@pytest.fixture
def same(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    return lambda program: both(built, monkeypatch, program)


def product(x: Any, y: Any) -> Any:
    return x * y, (x + 1).sin() * y


def test_a_result_may_come_with_requires_grad(same: Any, tmp_path: Path) -> None:
    """A `DTensor` is made with it, since it stands in its context."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        whole = distribute_tensor(torch.ones(3), init_device_mesh("cpu", (1,)), [Replicate()])

        def program() -> Any:
            x = whole.detach().requires_grad_()
            y = aot_compile(lambda x: x * 2)(x)
            y.sum().backward()
            return y.is_leaf, y.requires_grad, x.grad.to_local().tolist()

        found = same(program)[1]
        assert found == [False, True, 2.0, 2.0, 2.0]
    finally:
        distributed.destroy_process_group()


def test_its_name_and_what_it_leads_to(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built, "nodes")
    x, y = two(3), two(3, seed=1)
    first, second = aot_compile(lambda x, y: ((z := x * y), z.sin()))(x, y)
    node = first.grad_fn
    assert type(node).__name__ == node.name() == "CompiledBackward" and second.grad_fn is node
    assert not isinstance(node, torch.autograd.function.BackwardCFunction)
    assert [fn.variable is each for (fn, _), each in zip(node.next_functions, (x, y), strict=True)] == [True, True]
    assert node.metadata == {} and len(node._input_metadata) == 2
    assert any(saved is x for saved in node.saved_tensors)


MAKERS: dict[str, Callable[[int], Any]] = {
    "wrappers": lambda seed: two(3, 3, seed=seed),
    "dense": lambda seed: dense(3, 3, seed=seed),
    "foreign": lambda seed: two(3, 3, seed=seed, cls=ForeignTensor),
    "nested": lambda seed: TwoTensor(two(3, 3, seed=seed).detach(), two(3, 3, seed=seed + 5).detach()).requires_grad_(),
    "results of others": lambda seed: two(3, 3, seed=seed) * 2,
}


def backward(out: Any, x: Any, y: Any, **keywords: Any) -> Any:
    out.sum().backward(torch.ones_like(out.sum()), **keywords)
    return x.grad, y.grad, out


def _twice(f: Compiled, x: Any, y: Any) -> Any:
    out, _ = f(x, y)
    out.backward(torch.ones_like(out))
    out.backward(torch.ones_like(out))


def _retained(f: Compiled, x: Any, y: Any) -> Any:
    out, _ = f(x, y)
    out.backward(torch.ones_like(out), retain_graph=True)
    out.backward(torch.ones_like(out))
    return x.grad, y.grad


def _written(f: Compiled, x: Any, y: Any) -> Any:
    out, _ = f(x, y)
    with torch.no_grad():
        x.mul_(2)
    return backward(out, x, y)


def _written_inside(f: Compiled, x: Any, y: Any) -> Any:
    out, _ = f(x, y)
    with torch.no_grad():
        getattr(x, "a", x).mul_(2)
    return backward(out, x, y)


def _result_written(f: Compiled, x: Any, y: Any) -> Any:
    out, other = f(x, y)
    out.mul_(2)
    return (*backward(out, x, y), other)


def _second(f: Compiled, x: Any, y: Any) -> Any:
    out, _ = f(x, y)
    (first,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)
    first.backward(torch.ones_like(first))


def _hooks(f: Compiled, x: Any, y: Any) -> Any:
    said: list[Any] = []
    out, other = f(x, y)
    out.register_hook(lambda g: said.append(type(g).__name__) or g * 2)
    out.grad_fn.register_hook(lambda given, got: said.append((len(given), len(got))))
    out.grad_fn.register_prehook(lambda got: said.append([g is None for g in got]))
    out.retain_grad() if not out.is_leaf else None
    torch.autograd.backward([out], [torch.ones_like(out)], inputs=[x])
    return x.grad, y.grad, out.grad, said


def _saved_tensor_hooks(f: Compiled, x: Any, y: Any) -> Any:
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append((type(t).__name__, t.shape))
        return t.detach() * 2 if t.shape else t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out, _ = f(x, y)
    return (*backward(out, x, y), packed)


def _anomaly(f: Compiled, x: Any, y: Any) -> Any:
    with warnings.catch_warnings(), torch.autograd.detect_anomaly():
        warnings.simplefilter("ignore")
        out, _ = f(x * float("nan"), y)
        out.backward(torch.ones_like(out))


def _in_threads(f: Compiled, x: Any, y: Any) -> Any:
    def work() -> None:
        a, b = x.detach().requires_grad_(), y.detach().requires_grad_()
        for _ in range(50):
            a.grad = None
            got.append(backward(f(a, b)[0], a, b)[0] is a.grad is not None)

    got: list[bool] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def _wrong_tangent(f: Compiled, x: Any, y: Any) -> Any:
    out, _ = f(x, y)
    return torch.autograd.grad(out, x, torch.ones(7))


USES: dict[str, Callable[[Compiled, Any, Any], Any]] = {
    "all": lambda f, x, y: f(x, y),
    "backward": lambda f, x, y: backward(f(x, y)[0], x, y),
    "of the second": lambda f, x, y: backward(f(x, y)[1], x, y),
    "of both": lambda f, x, y: backward(sum(f(x, y)), x, y),
    "of one input": lambda f, x, y: torch.autograd.grad(out := f(x, y)[0], [y], torch.ones_like(out)),
    "several steps": lambda f, x, y: [backward(f(x, y)[0], x, y) for _ in range(3)],
    "the same twice": lambda f, x, y: backward(f(x, x)[0], x, y),
    "frozen": lambda f, x, y: backward(f(x, y.detach())[0], x, y),
    "no grad": lambda f, x, y: torch.no_grad()(f)(x, y),
    "twice": _twice,
    "retained": _retained,
    "an input is written": _written,
    "an inner tensor is written": _written_inside,
    "a result is written": _result_written,
    "second derivatives": _second,
    "hooks": _hooks,
    "saved tensor hooks": _saved_tensor_hooks,
    "anomaly": _anomaly,
    "threads": _in_threads,
    "a tangent that does not fit": _wrong_tangent,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("maker", MAKERS)
def test_it_does_what_the_function_of_torch_does(maker: str, use: str, same: Any) -> None:
    same(lambda: USES[use](aot_compile(product), MAKERS[maker](1), MAKERS[maker](2)))


@pytest.mark.parametrize("use", ["backward", "twice", "second derivatives", "hooks", "an inner tensor is written"])
def test_where_it_refuses(use: str, same: Any) -> None:
    ended = same(lambda: USES[use](aot_compile(product), two(3), two(3, seed=1)))
    said = {
        "twice": "Trying to backward through the graph a second time",
        "second derivatives": "differentiated again",
        "an inner tensor is written": "modified by an inplace operation",
    }
    assert said[use] in ended[1] if use in said else len(ended) == 3


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "an input as it is": lambda x, y: (x, x * y),
    "views of inputs": lambda x, y: (x.view(-1), x * y),
    "a whole number": lambda x, y: ((x * y).argmax() if type(x) is torch.Tensor else x.detach().int(), x * y),
    "nothing to give": lambda x, y: (x.detach() * 2, x * y),
    "an input is written": lambda x, y: (x.mul_(2) if x.grad_fn else x * 2, x * y),
    "a number": lambda x, y: (x.shape[0], x * y),
    "one thing twice": lambda x, y: (z := x * y, z),
    "a result that is saved": lambda x, y: (z := x.exp(), z * y),
    "a leaf is made": lambda x, y: ((x.detach() * 2).requires_grad_(), x * y),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_programs(maker: str, program: str, same: Any) -> None:
    def run() -> Any:
        x, y = MAKERS[maker](1), MAKERS[maker](2)
        first, out = aot_compile(PROGRAMS[program])(x, y)
        return (first, *backward(out, x, y))

    same(run)


def test_compiled_autograd_is_refused_by_name(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built)
    out, _ = aot_compile(product)(dense(3), dense(3, seed=1))
    with compiled_autograd._enable(lambda graph: graph), pytest.raises(NotImplementedError, match="compiled already"):
        out.sum().backward()


def test_what_backward_raises_comes_through(built: ModuleType) -> None:
    def fail(ctx: Any, *gradients: Any) -> Any:
        raise ZeroDivisionError("in backward")

    x = dense(3)
    (out,) = built.Function(lambda ctx, k, x: (x.detach() * 2,), fail, 1)(7, x)
    with pytest.raises(ZeroDivisionError, match="in backward"):
        out.sum().backward()
    for given, said in [((None,), "a tuple of 2 gradients"), ([None, None], "a tuple of 2"), ((None, 3), "not int")]:
        (out,) = built.Function(lambda ctx, k, x: (x.detach() * 2,), lambda ctx, g, given=given: given, 1)(7, x)
        with pytest.raises(RuntimeError, match=said):
            out.sum().backward()


def test_what_forward_raises_comes_through(built: ModuleType) -> None:
    def fail(ctx: Any, *given: Any) -> Any:
        raise ZeroDivisionError("in forward")

    x = dense(3)
    with pytest.raises(ZeroDivisionError, match="in forward"):
        built.Function(fail, fail, 0)(x)
    for wrong, said in [
        (lambda ctx, x: [x.detach()], "a tuple, not list"),
        (lambda ctx, x: (3,), "tensors, not int"),
        (lambda ctx, x: (x,), "no history"),
        (lambda ctx, x: ctx.save_for_backward(3) or (x.detach(),), "takes tensors, not int"),
    ]:
        with pytest.raises((TypeError, RuntimeError), match=said):
            built.Function(wrong, fail, 0)(x)
    with pytest.raises(TypeError, match="takes 2 arguments before tensors, and got 1"):
        built.Function(fail, fail, 2)(x)
    with pytest.raises(TypeError, match="gradients go to tensors, not to int"):
        built.Function(fail, fail, 0)(3)
    with pytest.raises(ValueError, match="no less than no"):
        built.Function(fail, fail, -1)


def test_its_context(built: ModuleType) -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        with pytest.raises(RuntimeError, match="while backward runs"):
            _ = ctx.saved_tensors
        ctx.sizes = [3]
        ctx.save_for_backward(x, None)
        return (x.detach() * 2, torch.ones(2, dtype=torch.int64))

    def back(ctx: Any, *gradients: Any) -> Any:
        saved, none = ctx.saved_tensors
        seen.append((saved is x, none, ctx.sizes, gradients))
        return (gradients[0] * 2,)

    x = dense(3)
    out, numbers = built.Function(forward, back, 0)(x)
    assert out.requires_grad and not numbers.requires_grad
    out.sum().backward()
    assert seen[0][:3] == (True, None, [3]) and seen[0][3][1] is None and torch.equal(x.grad, torch.full((3,), 2.0))
    with torch.no_grad():
        out, _ = built.Function(forward, back, 0)(x)
    assert out.grad_fn is None and not out.requires_grad


def test_nothing_is_kept(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built)
    f, x, y = aot_compile(product), two(3), two(3, seed=1)

    def steps(n: int) -> None:
        for _ in range(n):
            out, _ = f(x, y)
            out.backward(torch.ones_like(out))
            x.grad = y.grad = None
            f(x, y)  # whose backward never runs

    steps(5)
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    steps(2000)
    gc.collect()
    assert len(gc.get_objects()) <= objects + 10 and sys.getallocatedblocks() <= blocks + 200
    out, other = f(x, y)
    node, inner = weakref.ref(out), weakref.ref(out.a)
    gc.disable()
    try:
        del out, other
        assert node() is inner() is None, "without the garbage collector"
    finally:
        gc.enable()


def test_a_node_may_go_in_another_thread(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built)
    f, held = aot_compile(product), [two(3), two(3, seed=1)]
    results = [f(*held)]
    thread = threading.Thread(target=results.clear)
    thread.start()
    thread.join()
    deep = two(3)
    for _ in range(3000):  # one node leads to the next: they go without a deep stack
        deep, _ = f(deep, held[1])
    del deep
