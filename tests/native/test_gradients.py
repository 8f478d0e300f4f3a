"""Gradients that backward sets itself: where autograd would do the same, and nowhere else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import TwoTensor, _native, aot_compile

TWO = {"ours": TwoTensor, "of another library": ForeignTensor}


@pytest.fixture(params=TWO)
def cls(request: pytest.FixtureRequest) -> Any:
    return TWO[request.param]


@pytest.fixture(autouse=True)
def set_by(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many gradients each backward set."""
    found: list[int] = []

    def set_gradients(ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        rest = built.set_gradients(ctx, gradients)
        found.append(sum(a is not None and b is None for a, b in zip(gradients, rest, strict=True)))
        return rest  # type: ignore[no-any-return]

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return set_gradients if name == "set_gradients" else getattr(built, name)

    monkeypatch.setattr(_native, "accelerator", lambda part: Counting())
    return found


def program(x: Any, y: Any) -> Any:
    return x * 2 + x * y


def leaf(cls: Any, value: float = 1.0) -> Any:
    return cls(torch.full((2, 3), value), torch.full((2, 3), value + 1)).requires_grad_()


def gradients(fn: Callable[..., Any], backward: Callable[[Any, Any, Any], Any], cls: Any) -> list[Any]:
    """What is in `.grad` of two leaves after something, and what that gives."""
    x, y = leaf(cls), leaf(cls, 3.0)
    given = backward(fn, x, y)
    found = [each.grad if each is not None and not isinstance(each, int) else each for each in (x, y)]
    return [*found, *(given or ())]


def plain(value: Any) -> Any:
    return [value.a, value.b] if isinstance(value, TwoTensor | ForeignTensor) else value


def once(fn: Any, x: Any, y: Any) -> None:
    fn(x, y).sum().backward()


def twice(fn: Any, x: Any, y: Any) -> None:
    once(fn, x, y)
    once(fn, x, y)


def retained(fn: Any, x: Any, y: Any) -> None:
    loss = fn(x, y).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def by_two_ways(fn: Any, x: Any, y: Any) -> None:
    (fn(x, y) + x * 3).sum().backward()


def compiled_twice_in_one_graph(fn: Any, x: Any, y: Any) -> None:
    (fn(x, y) + fn(x, y * 1)).sum().backward()


def asked_for(fn: Any, x: Any, y: Any) -> Any:
    return torch.autograd.grad(fn(x, y).sum(), (x, y))


def inputs(fn: Any, x: Any, y: Any) -> None:
    fn(x, y).sum().backward(inputs=[y])


def of_one(fn: Any, x: Any, y: Any) -> None:
    x.requires_grad_(False)
    once(fn, x, y)


def with_history(fn: Any, x: Any, y: Any) -> None:
    once(fn, x * 1, y)


def create_graph(fn: Any, x: Any, y: Any) -> None:
    fn(x, y).sum().backward(create_graph=True)


def hooked(fn: Any, x: Any, y: Any) -> Any:
    seen: list[Any] = []
    x.register_hook(lambda gradient: seen.append("x") or gradient * 2)
    y.register_post_accumulate_grad_hook(lambda leaf: seen.append("y"))
    once(fn, x, y)
    return sorted(seen)  # which leaf comes first is nobody's business


def node_hooked(fn: Any, x: Any, y: Any) -> Any:
    seen: list[Any] = []
    node = torch.autograd.graph.get_gradient_edge(x).node
    node.register_prehook(lambda gradients: seen.append("before"))
    node.register_hook(lambda *gradients: seen.append("after"))
    once(fn, x, y)
    return seen


def in_anomaly_mode(fn: Any, x: Any, y: Any) -> None:
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        once(fn, x, y)


# What is done, and how many gradients each backward sets.
DONE: list[tuple[Callable[..., Any], list[int]]] = [
    (once, [2]), (twice, [2, 0]), (retained, [2, 0]), (compiled_twice_in_one_graph, [1, 1]), (asked_for, [0]),
    (inputs, [1]), (of_one, [1]), (with_history, [1]), (hooked, [0]), (node_hooked, [1]), (in_anomaly_mode, [2]),
]  # fmt: skip


@pytest.mark.parametrize("do, counts", DONE, ids=lambda value: getattr(value, "__name__", None))
def test_as_autograd_does_it(do: Callable[..., Any], counts: list[int], cls: Any, set_by: list[int]) -> None:
    expected = gradients(program, do, cls)
    found = gradients(aot_compile(program, direct_grad=True), do, cls)
    assert len(found) == len(expected)
    for one, other in zip(expected, found, strict=True):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(plain(other), plain(one), rtol=0, atol=0)
            assert (other.requires_grad, other.is_leaf) == (False, True)
            if do is not compiled_twice_in_one_graph:  # there the engine adds two up before, in a tensor of its own
                assert other._version == one._version
        else:
            assert one == other
    if do is compiled_twice_in_one_graph:
        assert sum(set_by) >= 1
    else:
        assert set_by == counts


def test_a_leaf_with_gradients_by_two_ways(cls: Any) -> None:
    """They are added up, whichever comes first."""
    expected, found = (
        gradients(program, by_two_ways, cls),
        gradients(aot_compile(program, direct_grad=True), by_two_ways, cls),
    )
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(plain(other), plain(one))


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
def test_second_derivatives_are_refused_as_ever(cls: Any, set_by: list[int]) -> None:
    found = gradients(aot_compile(program, direct_grad=True), create_graph, cls)
    assert set_by == [] and found[0].requires_grad


def test_off_by_default(cls: Any, set_by: list[int]) -> None:
    gradients(aot_compile(program), once, cls)
    assert set_by == []


def test_without_the_accelerator(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gradients(program, once, cls)
    monkeypatch.setattr(_native, "accelerator", lambda part: None)
    for one, other in zip(expected, gradients(aot_compile(program, direct_grad=True), once, cls), strict=True):
        torch.testing.assert_close(plain(other), plain(one))


def test_dense_gradients_are_left_to_autograd(set_by: list[int]) -> None:
    """A graph may give one tensor for two leaves, or one that others hold."""
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    aot_compile(lambda x, y: x + y, direct_grad=True)(x, y).sum().backward()
    assert set_by == [0] and x.grad is not y.grad and x.grad.data_ptr() != y.grad.data_ptr()


def test_nothing_is_kept_alive(cls: Any) -> None:
    x, y = leaf(cls), leaf(cls)
    once(aot_compile(program, direct_grad=True), x, y)
    dead = [weakref.ref(each) for each in (x.grad, x.grad.a, x, y)]
    del x, y
    gc.collect()
    assert [ref() for ref in dead] == [None] * 4


def test_outside_of_backward(built: ModuleType) -> None:
    given = (None, TwoTensor(torch.ones(2), torch.ones(2)))
    assert built.set_gradients(object(), given) is given
    with pytest.raises(TypeError, match="takes a tuple"):
        built.set_gradients(object(), [])
