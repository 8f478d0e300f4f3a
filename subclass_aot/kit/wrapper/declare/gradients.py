"""Between a wrapper and the dense tensors around it: `to_plain` and the constructor, as autograd sees them.

Note [Gradients of fields]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Autograd sees a wrapper as one tensor. An author's `to_plain` computes with inner tensors, of which autograd knows
nothing; so where the wrapper requires grad it runs as one function of the wrapper. And where what goes into the
constructor requires grad, the constructor is a function of that. The gradient of a wrapper is dense where its operators
run on `to_plain()`, and of its class otherwise; either is brought to a field by the chain rule:

- from a dense gradient, by going back over `to_plain`, which says how the dense tensor is made of the fields;
- from one of the class, by taking the field.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.errors import TangentError
from subclass_aot.kit.wrapper.declare.construct import assemble, inner_tensors
from subclass_aot.kit.wrapper.kind import Wrapper

ToPlain = Callable[..., torch.Tensor]
"""A method `to_plain`."""

_NO_WAY = """A tensor of the class {cls} was made of tensors that require grad, and its gradient is a {got}.
  That does not say what theirs are.
  Instead: give {cls} a method to_plain, over which a dense gradient goes back, or a rule for the operator that reads it
  which gives a {cls} as gradient."""


def differentiable(to_plain: ToPlain) -> ToPlain:
    """Returns an author's `to_plain` as the method that users call: autograd sees one function of the wrapper."""

    @functools.wraps(to_plain)
    def method(self: Wrapper) -> torch.Tensor:
        if self.requires_grad and torch.is_grad_enabled() and not _torch.autograd.is_below_autograd():
            return _ToPlain.apply(self, to_plain)  # type: ignore[no-any-return, no-untyped-call]
        return to_plain(self)

    return method


def construct(cls: type[Wrapper], state: dict[str, object]) -> Any:
    """Returns an instance that holds `state`, of which some tensors may require grad: then it is a function of these.

    Args:
        cls: The wrapper class.
        state: The new `__dict__`. See Note [What an instance holds].
    """
    wanting = {name: x for name, x in state.items() if isinstance(x, torch.Tensor) and x.requires_grad}
    if not wanting:
        return assemble(cls, state)
    if torch.is_grad_enabled() and not _torch.autograd.is_below_autograd():
        return _Construct.apply(cls, state, list(wanting), *wanting.values())  # type: ignore[no-untyped-call]
    return assemble(cls, state | {name: tensor.detach() for name, tensor in wanting.items()})


class _ToPlain(torch.autograd.Function):
    """See Note [Gradients of fields]."""

    @staticmethod
    def forward(wrapper: Wrapper, to_plain: ToPlain) -> torch.Tensor:
        plain = to_plain(wrapper)
        is_inner = any(plain is inner for inner in inner_tensors(wrapper).values())
        return plain.view_as(plain) if is_inner else plain  # what is returned gets a history, and no inner tensor has

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        wrapper, ctx.to_plain = inputs
        ctx.save_for_backward(wrapper)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, None]:
        (wrapper,) = ctx.saved_tensors
        cls = type(wrapper)
        declaration = cls.__wrapper_declaration__
        if declaration.fallback == "plain":
            return gradient, None
        inner = inner_tensors(wrapper)
        found = _through_plain(cls, {**inner, **wrapper.__wrapper_state__()}, list(inner), gradient, ctx.to_plain)
        fields = {}
        for name, tensor in inner.items():
            each = tensor.clone() if declaration.is_structure(name) else found[name]
            fields[name] = torch.zeros_like(tensor) if each is None else each
        return assemble(cls, {**fields, **wrapper.__wrapper_state__()}), None


class _Construct(torch.autograd.Function):
    """See Note [Gradients of fields]."""

    @staticmethod
    def forward(cls: type[Wrapper], state: dict[str, object], wanting: list[str], *tensors: torch.Tensor) -> Any:
        return assemble(cls, state | {name: t.detach() for name, t in zip(wanting, tensors, strict=True)})

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        ctx.cls, state, ctx.wanting, *tensors = inputs
        given = {**state, **dict(zip(ctx.wanting, tensors, strict=True))}
        ctx.saved = [name for name, value in given.items() if isinstance(value, torch.Tensor)]
        ctx.others = {name: value for name, value in given.items() if name not in ctx.saved}
        ctx.order = list(state)
        # The output too: who writes it writes the fields, and autograd counts that only where it sees it.
        ctx.save_for_backward(*(given[name] for name in ctx.saved), output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        if isinstance(gradient, ctx.cls):
            return None, None, None, *(getattr(gradient, name) for name in ctx.wanting)
        if not hasattr(ctx.cls, "to_plain"):
            raise TangentError(_NO_WAY.format(cls=ctx.cls.__name__, got=type(gradient).__name__))
        given = {**ctx.others, **dict(zip(ctx.saved, ctx.saved_tensors[:-1], strict=True))}
        state = {name: given[name] for name in ctx.order}
        found = _through_plain(ctx.cls, state, ctx.wanting, gradient, ctx.cls.to_plain)
        return None, None, None, *found.values()


def _through_plain(
    cls: type[Wrapper],
    state: Mapping[str, Any],
    names: Iterable[str],
    gradient: torch.Tensor,
    to_plain: ToPlain,
) -> dict[str, torch.Tensor | None]:
    """Returns the gradients of inner tensors, from that of what `to_plain` makes of them; None for one that has no part
    in it.

    Args:
        cls: The wrapper class.
        state: What an instance holds.
        names: The inner tensors.
        gradient: That of the dense tensor.
        to_plain: The method.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = {}
        for name in names:
            tensor = state[name] if again else state[name].detach()
            can = tensor.is_floating_point() or tensor.is_complex()
            leaves[name] = tensor if tensor.requires_grad or not can else tensor.detach().requires_grad_()
        plain = to_plain(assemble(cls, {**state, **leaves}))
        wanting = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        if not plain.requires_grad:
            return dict.fromkeys(leaves)
        found = torch.autograd.grad(plain, list(wanting.values()), gradient, create_graph=again, allow_unused=True)
    return {**dict.fromkeys(leaves), **dict(zip(wanting, found, strict=True))}
