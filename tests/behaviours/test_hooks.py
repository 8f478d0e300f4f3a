"""Hooks on tensors, modules and saved tensors, and activation checkpointing, which is made of them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.autograd import graph
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from subclass_aot import aot_compile
from subclass_aot.errors import MutationError


def program(x: Any) -> Any:
    return (x * x).sin()


def with_gradient(function: Any, x: Any) -> Any:
    """Goes backward by `.backward()`, which is what checkpoints with `use_reentrant=True` want."""
    out = function(x)
    (out * out).sum().backward()
    return out, x.grad


def test_hooks_on_arguments_and_results(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        seen = []
        args[0].register_hook(lambda gradient: seen.append(gradient * 1) or gradient * 2)
        out.register_hook(lambda gradient: gradient * 3)
        return torch.autograd.grad((out * out).sum(), args[0]), seen

    agree(program, lambda: (kind(3, 4, grad=True),), later)


def test_hooks_that_see_accumulated_gradients(follow: Any, kind: Any) -> None:
    def use(function: Any, i: int) -> Any:
        x, seen = kind(3, 4, grad=True), []
        x.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad * 1))
        for _ in range(2):
            out = function(x)
            out.retain_grad()
            out.sum().backward()
        return x.grad, seen, out.grad

    follow(program, use)


def test_hook_that_calls_the_function_again(follow: Any, kind: Any) -> None:
    def use(function: Any, i: int) -> Any:
        x, seen = kind(3, 4, grad=True), []
        out = function(x)
        out.register_hook(lambda gradient: seen.append(function(gradient.detach() * 1.5)))
        return torch.autograd.grad((out * out).sum(), x), seen

    follow(program, use)


@pytest.mark.parametrize("on_result", [True, False])
def test_hook_registered_inside(follow: Any, kind: Any, on_result: bool) -> None:
    def inside(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 5)
        return y if on_result else y.sin()

    follow(inside, lambda function, i: with_gradient(function, kind(3, 4, grad=True)))


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hook_on_an_input_inside_is_refused(kind: Any, register: str) -> None:
    """It would stay on the tensor of the trace, and the user's would not have it."""

    def inside(x: Any) -> Any:
        getattr(x, register)(lambda value: None)
        return x * 2

    with pytest.raises(MutationError, match=r"args\[0\]: the function registers a gradient hook"):
        aot_compile(inside, values="refuse")(kind(3, 4, grad=True))


def test_hooks_of_modules(follow: Any) -> None:
    def network() -> Any:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        module[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        module[1].register_forward_hook(lambda module, args, out: out * 3)
        module[2].register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 2,))
        module[0].register_full_backward_pre_hook(lambda module, grad_out: (grad_out[0] * 3,))
        module[0].weight.register_hook(lambda gradient: gradient * 7)
        return module

    module = network()

    def use(function: Any, i: int) -> Any:
        module.zero_grad()
        hook = module.register_forward_hook(lambda module, args, out: out + 1) if i == 1 else None
        results = with_gradient(function, torch.ones(3, 4, requires_grad=True))
        if hook is not None:
            hook.remove()
        return results, [p.grad.clone() for p in module.parameters()]

    compiled = follow(module, use, 3)
    assert len(compiled.recompiles) == 1


# -- hooks on saved tensors --------------------------------------------------------------------------------------------


def doubled() -> Any:
    return graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor * 2)


def refused() -> Any:
    return graph.disable_saved_tensors_hooks("not here")


@pytest.mark.parametrize("hooks", [graph.save_on_cpu, refused], ids=["save_on_cpu", "disabled"])
def test_saved_tensor_hooks_around(follow: Any, kind: Any, hooks: Any) -> None:
    def use(function: Any, i: int) -> Any:
        x = kind(3, 4, grad=True)
        with hooks():
            out = function(x)
        return out, torch.autograd.grad((out * out).sum(), x)

    follow(program, use)


def test_saved_tensor_hooks_around_change_what_is_saved(follow: Any) -> None:
    def use(function: Any, i: int) -> Any:
        x = torch.ones(3, 4, requires_grad=True)
        with doubled():
            out = function(x)
        return out, torch.autograd.grad(out.sum(), x)

    follow(lambda x: x * torch.full_like(x, 3), use)


@pytest.mark.parametrize("around", [graph.save_on_cpu, refused], ids=["save_on_cpu", "disabled"])
@pytest.mark.parametrize("hooks", [graph.save_on_cpu, doubled])
def test_saved_tensor_hooks_inside(follow: Any, kind: Any, hooks: Any, around: Any) -> None:
    """Where they are disabled around, eager refuses them inside."""

    def inside(x: Any) -> Any:
        with hooks():
            return program(x)

    def use(function: Any, i: int) -> Any:
        x = kind(3, 4, grad=True)
        if i > 0:
            with around():
                out = function(x)
        else:
            out = function(x)
        return out, torch.autograd.grad((out * out).sum(), x)

    if around is refused:
        with refused(), pytest.raises(RuntimeError, match="not here"):
            aot_compile(inside, values="refuse")(kind(3, 4, grad=True))
    else:
        follow(inside, use)


# -- activation checkpointing ------------------------------------------------------------------------------------------


def dropped(x: Any) -> Any:
    return torch.nn.functional.dropout(program(x) + torch.rand_like(x)) * x


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("what", [program, dropped])
def test_checkpoint_around(follow: Any, kind: Any, what: Any, reentrant: bool) -> None:
    def use(function: Any, i: int) -> Any:
        x = kind(3, 4, grad=True)
        results = with_gradient(lambda x: checkpoint(function, x, use_reentrant=reentrant), x)
        return results[0].detach(), results[1], torch.rand(1)

    follow(what, use)


@pytest.mark.inductor("two")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_inside(follow: Any, kind: Any, reentrant: bool) -> None:
    def inside(x: Any) -> Any:
        return checkpoint(program, x, use_reentrant=reentrant) * 2

    follow(inside, lambda function, i: with_gradient(function, kind(3, 4, grad=True)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_inside_draws_the_same_numbers_again(follow: Any, kind: Any, reentrant: bool) -> None:
    def inside(x: Any) -> Any:
        first = checkpoint(dropped, x, use_reentrant=reentrant)
        return torch.nn.functional.dropout(checkpoint(dropped, first, use_reentrant=reentrant))

    def use(function: Any, i: int) -> Any:
        return with_gradient(function, kind(3, 4, grad=True)), torch.rand(1)

    follow(inside, use, 3)


def test_checkpoint_inside_without_the_state_draws_new_numbers(follow: Any) -> None:
    def inside(x: Any) -> Any:
        return checkpoint(dropped, x, use_reentrant=False, preserve_rng_state=False)

    def use(function: Any, i: int) -> Any:
        return with_gradient(function, torch.ones(30, 4, requires_grad=True)), torch.rand(1)

    follow(inside, use)


def test_checkpoint_inside_that_keeps_some_results(follow: Any) -> None:
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])

    def part(x: Any, w: Any) -> Any:
        return torch.nn.functional.dropout((x @ w).sin() * x)

    def use(function: Any, i: int) -> Any:
        x, w = (torch.rand(4, 4, requires_grad=True) for _ in range(2))
        out = function(x, w)
        return out, torch.autograd.grad((out * out).sum(), [x, w])

    follow(lambda x, w: checkpoint(part, x, w, use_reentrant=False, context_fn=contexts), use)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("around", [True, False])
def test_checkpoint_of_a_module(follow: Any, reentrant: bool, around: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))

    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    def use(function: Any, i: int) -> Any:
        module.zero_grad()
        x = torch.ones(3, 4, requires_grad=True)
        out, _ = with_gradient(lambda x: checkpoint(function, x, use_reentrant=reentrant) if around else function(x), x)
        return out.detach(), x.grad, [p.grad.clone() for p in module.parameters()]

    follow(module if around else Checkpointed(), use)
