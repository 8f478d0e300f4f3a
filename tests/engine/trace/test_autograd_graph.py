"""What autograd's graph tells of tensors: asked of real ones, whose gradients autograd itself can compute."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.trace.autograd_graph import (
    foreign_leaves,
    gradients_of,
    has_history,
    is_invalidated,
    is_only_viewed,
    leaf_behind,
    without_saved_tensor_hooks,
)
from subclass_aot.testing.compare import dense_leaves


def leaf(*size: int) -> torch.Tensor:
    return torch.rand(size or (3,), requires_grad=True)


class FirstOnly(torch.autograd.Function):
    """A product that gives no gradient to its second factor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


def test_autograd_goes_through_what_has_a_way_to_a_leaf() -> None:
    x = leaf()
    assert has_history(x * 2) and has_history((x * 2)[0]) and has_history(x[0])
    assert not has_history(torch.ones(3)) and not has_history(x.detach())


def test_a_view_of_a_view_that_was_made_without_gradients_leads_nowhere() -> None:
    with torch.no_grad():
        view = (leaf() * 1)[:2]
    assert not has_history(view[:1])
    with torch.no_grad():
        view = leaf()[:2]
    assert view[:1].requires_grad and not has_history(view[:1])


def test_a_view_that_autograd_refuses_to_speak_of() -> None:
    base = torch.rand(3)
    with torch.no_grad():
        view = base[:2]
    base.mul_(leaf())
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        print(view.grad_fn)
    assert is_invalidated(view) and not has_history(view)
    assert not is_invalidated(base[:2]) and not is_invalidated(torch.ones(3))


def test_the_leaf_between_a_view_and_its_base() -> None:
    base = torch.rand(2, 3)
    made = base.view(-1).requires_grad_()
    assert leaf_behind(made[1:]) is made and leaf_behind(made[1:][0]) is made
    assert leaf_behind(leaf()[1:]) is None, "that is the base itself"
    assert leaf_behind(made * 2) is None and leaf_behind(base[0]) is None


def test_gradients_are_those_of_autograd_and_can_be_asked_for_again() -> None:
    x, y, unused = leaf(), leaf(), leaf()
    results, tangents = [x * y, x.sin()], [torch.rand(3), torch.rand(3)]
    expected = torch.autograd.grad(results, [x, y, unused], tangents, retain_graph=True, allow_unused=True)
    for _ in range(2):
        found = gradients_of(results, [x, y, unused], tangents)
        assert found.gradients[2] is None and not found.errors
        torch.testing.assert_close(found.gradients[:2], expected[:2])
    assert x.grad is None


def test_which_results_each_gradient_comes_from() -> None:
    x, y, unused = leaf(), leaf(), leaf()
    results = [x * 2, FirstOnly.apply(x, y * 3), y + x.detach()]  # type: ignore[no-untyped-call]
    found = gradients_of(results, [x, y, unused], [torch.ones(3)] * 3)
    assert found.reach == ((0, 1), (2,), ())
    assert gradients_of(results[:1], [x], [torch.ones(3)]).reach == ((0,),)


class Through(torch.autograd.Function):
    """Is given zeros where there is no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3


class OnlyWithGradient(torch.autograd.Function):
    """Is given None where there is no gradient."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> torch.Tensor | None:
        return None if gradient is None else gradient * 3


def dead_ends(between: Any) -> list[Any]:
    """Programs in which a gradient ends, and `between` stands behind that end."""
    first, last = FirstOnly.apply, Through.apply
    return [
        lambda x, y: (first(x, s := between(y)), s),
        lambda x, y: (first(x, (s := between(y * 2)) * 3), s + y),
        lambda x, y: (first(x, last((s := between(y)) * 2)), s),
        lambda x, y: (first(x, between(s := y.sin())), s),
        lambda x, y: (first(x, s := between(y)), first(s, between(x)), s * x),
        lambda x, y: (first(first(x, s := between(y)), between(s)), s, y * 2),
    ]


@pytest.mark.parametrize("between", [Through.apply, OnlyWithGradient.apply, torch.sin])
@pytest.mark.parametrize("program", range(6))
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_function_behind_a_dead_end(between: Any, program: int, used: tuple[int, ...]) -> None:
    function = dead_ends(between)[program]
    given = [[torch.full((3,), 0.5, requires_grad=True) for _ in range(2)] for _ in range(2)]
    for called, (x, y) in zip((function, aot_compile(function)), given, strict=True):
        out = called(x, y)
        sum(out[i].sum() for i in used).backward()
    for eager, ours in zip(*given, strict=True):
        assert (eager.grad is None) == (ours.grad is None)
        torch.testing.assert_close(ours.grad, eager.grad)


class Again(torch.autograd.Function):
    """As a layer that is computed again: its backward calls `backward()`, which gets to what it was not given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, function: Any) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.function = function
        with torch.no_grad():
            return function(x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            torch.autograd.backward(ctx.function(x), gradient)
        return x.grad, None


def again(function: Any, x: Any) -> Any:
    return Again.apply(x, function)  # type: ignore[no-untyped-call]


ACCUMULATING: list[Callable[[Any, Any], tuple[Any, Any]]] = [
    lambda x, w: (again(lambda x: x * w, x), x * 2),
    lambda x, w: (again(lambda x: x * w, x), x * w),
    lambda x, w: (again(lambda x: x * w, x.sin()) * w, again(lambda x: x * w.sin(), x)),
    lambda x, w: (again(lambda x: again(lambda x: x * w, x) * w, x), w * 2),
    lambda x, w: (again(lambda x: x * w, again(lambda x: x + w.exp(), w * 1)), x * w),
    lambda x, w: (checkpoint(lambda x: again(lambda x: x * w, x), x, use_reentrant=True), x * 2),
    lambda x, w: (checkpoint(lambda x: again(lambda x: x * w, x), x, use_reentrant=False), w * 2),
    lambda x, w: (again(lambda x: x * w, x), FirstOnly.apply(x, w)),  # type: ignore[no-untyped-call]
    lambda x, w: (again(lambda x: x.sin(), x), w * 2),
]


@pytest.mark.parametrize("program", range(len(ACCUMULATING)))
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_function_whose_backward_accumulates_gradients(program: int, used: tuple[int, ...], wrapped: bool) -> None:
    function = ACCUMULATING[program]
    compiled, found = aot_compile(function), []
    for called in (function, compiled):
        x, w = (torch.tensor([0.1, 0.2, 0.3]) * n for n in (1, 2))
        w = (TwoTensor(w, w * 3) if wrapped else w).requires_grad_()
        x.requires_grad_()
        for _ in range(2):  # gradients add up
            sum(each.sum() for i, each in enumerate(called(x, w)) if i in used).backward()
        found.append([leaf for t in (x.grad, w.grad) for leaf in (dense_leaves(t) if t is not None else [None])])
    for eager, ours in zip(*found, strict=True):
        assert (eager is None) == (ours is None)
        torch.testing.assert_close(ours, eager)


def test_a_module_that_is_computed_again() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: torch.Tensor) -> Any:
            for layer in self.layers:
                x = again(layer, x)
            return x.sum()

    model = Net()
    twin = copy.deepcopy(model)
    compiled = aot_compile(twin)
    for size in (2, 2, 3):
        for function in (model, compiled):
            function(torch.ones(size, 3, requires_grad=True)).backward()
        for eager, ours in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, eager.grad)


def test_what_a_write_gave_a_history_is_reached_through_it() -> None:
    x, y = leaf() * 1, leaf()
    start = x.view_as(x)
    start.mul_(y)
    found = gradients_of([start * 2, y * 3], [start, y], [torch.ones(3)] * 2)
    assert found.reach == ((0,), (0, 1))


def test_a_checkpoint_hides_what_it_reaches_and_its_gradients_are_found() -> None:
    x, y = leaf(), leaf()
    results = [checkpoint(lambda x: (x * y).sin(), x, use_reentrant=True), x * 2]
    for _ in range(2):
        found = gradients_of(results, [x, y], [torch.ones(3)] * 2)
        torch.testing.assert_close(found.gradients, (y * (x * y).cos() + 2, x * (x * y).cos()))
        assert found.reach == ((0, 1), (0,))


def test_of_what_was_written_since_it_is_said_for_each_result_what_autograd_says() -> None:
    x, y = leaf(), leaf()
    middle = x * 1
    lost, kept = middle.exp(), y * x
    lost.mul_(2)
    found = gradients_of([x * 2, lost, kept], [x, y], [torch.ones(3)] * 3)
    assert list(found.errors) == [1] and "modified by an inplace operation" in found.errors[1]
    torch.testing.assert_close(found.gradients, (y.detach() + 2, x.detach()))
    assert found.reach == ((0, 2), (2,))
    alone = gradients_of([lost], [x], [torch.ones(3)])
    assert (alone.gradients, alone.reach, list(alone.errors)) == ((None,), ((),), [0])


def test_other_errors_of_a_backward_are_raised() -> None:
    x = leaf()
    result = x.exp()
    torch.autograd.grad(result.sum(), x)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients_of([result], [x], [torch.ones(3)])


def test_leaves_that_are_no_inputs_are_found_once() -> None:
    x, foreign = leaf(), leaf()
    found = list(foreign_leaves([x * foreign, foreign.sin() + x.detach()], [x]))
    assert len(found) == 1 and found[0] is foreign
    assert not list(foreign_leaves([x * 2, torch.ones(3)], [x]))


def test_within_the_block_nobody_hears_of_saved_tensors_and_nobody_looks_for_nan() -> None:
    heard = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        heard.append(tensor)
        return tensor

    x = torch.zeros(3, requires_grad=True)
    with (
        torch.autograd.set_detect_anomaly(True),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        with without_saved_tensor_hooks():
            inside = x.exp()
            (gradient,) = torch.autograd.grad(x.sqrt() * 0, x, torch.full((3,), float("nan")))
            assert gradient.isnan().all() and not heard and not torch.is_anomaly_enabled()
        assert torch.is_anomaly_enabled()
        x.exp()
    assert len(heard) == 1
    assert torch.equal(torch.autograd.grad(inside.sum(), x)[0], torch.ones(3))


class Coded(torch.Tensor):
    """Overrides functions of torch, and turns that off for what it does not, as most classes do."""

    codes: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor) -> Coded:
        made = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)
        made.codes = codes
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: None, size: Any, stride: Any) -> Coded:
        return Coded(inner["codes"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            return _Product.apply(*args)  # type: ignore[no-untyped-call]
        if func is torch.Tensor.to:
            return args[0].codes.to(*args[1:]) / 10
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Coded(func(args[0].codes))
        raise NotImplementedError(func)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(weight)
        return x @ weight.to(x.dtype).t()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient @ ctx.saved_tensors[0].to(gradient.dtype), None


def test_what_a_class_overrides_it_overrides_in_backward_too() -> None:
    """So it is when a user goes back from a loss, which is no tensor of the class."""
    weight = torch.nn.Parameter(Coded(torch.arange(6, dtype=torch.int8).view(2, 3)))
    assert weight.requires_grad
    gradients = []
    for function in (torch.nn.functional.linear, aot_compile(torch.nn.functional.linear)):
        x = torch.ones(4, 3, requires_grad=True)
        function(x, weight).sin().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)
    assert weight.grad is None


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


@pytest.mark.parametrize("root", [leaf(2, 3), leaf(2, 3) * 2])
def test_views_that_are_no_more_than_views(root: torch.Tensor) -> None:
    reverse: Any = Reverse.apply
    assert is_only_viewed(root.t(), True) and is_only_viewed(root.view(-1)[1:], True) and is_only_viewed(root * 2, True)
    assert is_only_viewed(root.detach()[0], True)
    assert is_only_viewed(reverse(root).sin(), True), "it is no view"
    assert not is_only_viewed(reverse(root), False) and not is_only_viewed(reverse(root.t())[0], False)
    view = root.t()
    node: Any = view.grad_fn
    for register in (node.register_hook, node.register_prehook):
        handle = register(lambda *gradients: None)
        assert not is_only_viewed(view[0], True) and is_only_viewed(view[0], False)
        handle.remove()
        assert is_only_viewed(view[0], True)
