"""Views that share a field with the rest of their tensor, and what they are views of.

Note [Fields shared by views]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A view has all of a field along the dims in which the field is broadcast: two columns of a matrix have the scales of
whole rows. New values want other scales, and these belong to the other columns, too. So a write into such a view is a
write into the tensor that it is a view of: that is made dense, written at the place of the view, and taken in anew by
`from_plain`, which rounds the other columns again where scales change.

Autograd knows what is a view of what, and how it was made. Of tensors made in inference mode it does not, nor of those
that another wrapper holds, whose views are made below autograd, nor of what `detach` made of a view. So a view has it
in an attribute, too.

Torch's own compiler works on tensors made anew of the fields that `__tensor_flatten__` names, of which nobody knows any
more that they were a view's. So the context says it: `ContextOfView` is equal to the context without it, but for
Dynamo's guards, and a wrapper that is made with it while torch traces is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.views import Chain, FunctionStep, Step
from subclass_aot.kit.wrapper.kind import Wrapper

ORIGIN = "_view_of_wrapper"
"""The attribute of a wrapper that says what it is a view of; few have it."""


class Origin(NamedTuple):
    """The base of a wrapper that is a view. As autograd does it, a view keeps that: others may have fields in common
    with it.

    Attributes:
        base: The wrapper; None where only its parts were handed over.
        chain: How it is made of that.
        lost: Without a base, the names of the fields that are shared.
    """

    base: Any
    chain: Chain = Chain()
    lost: tuple[str, ...] = ()


_NONE = Origin(None)


def _origin(wrapper: torch.Tensor) -> Origin:
    return wrapper.__dict__.get(ORIGIN, _NONE)  # type: ignore[no-any-return]


class ContextOfView(tuple[Any, ...]):
    """The context of a view that shares fields; equal to what it is made of.

    Args:
        context: The context as it is for any other tensor.
        shared: The names of the fields.
    """

    shared: tuple[str, ...]
    context: tuple[Any, ...] | None

    def __new__(cls, context: tuple[Any, ...] | None, shared: Iterable[str]) -> ContextOfView:
        made = super().__new__(cls, context or ())
        made.context, made.shared = context, tuple(shared)
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.context, self.shared

    def __eq__(self, other: object) -> bool:
        return self.context == (other.context if isinstance(other, ContextOfView) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.context)


def same_for_guards(context: object, other: object) -> bool:
    """Returns whether what was compiled for the one context may be used for the other."""
    return context == other and getattr(context, "shared", ()) == getattr(other, "shared", ())


def may_share(wrapper: str) -> str:
    """Returns the expression for whether the wrapper in a variable may be a view that shares fields, which few are."""
    return f"{ORIGIN!r} in {wrapper}.__dict__"


def context_of_view(view: torch.Tensor, names: Sequence[str], context: tuple[Any, ...] | None) -> Any:
    """Returns the context of a wrapper that may be a view which shares fields.

    Args:
        view: The wrapper.
        names: Its inner tensors.
        context: The context as it is for any other tensor.
    """
    base, _, lost = _origin(view)
    shared: Sequence[str] = lost
    if type(base) is type(view):
        shared = _shared(view, base, names, _is_shared_in_example)
    return ContextOfView(context, shared) if shared else context


def lose_origin(made: Any, context: ContextOfView) -> Any:
    """Has a wrapper, just made with a context while torch traces, refuse to be written; gives the wrapper.

    Elsewhere, whoever took a tensor apart has its fields, and may write these.
    """
    inner: Any = made
    while hasattr(inner, "__tensor_flatten__"):
        inner = getattr(inner, inner.__tensor_flatten__()[0][0])
    if _torch.wrappers.is_of_torchs_trace(inner):
        made.__dict__[ORIGIN] = Origin(None, lost=context.shared)
    return made


def shares_fields(view: Any) -> bool:
    """Returns whether a wrapper is a view that cannot be written without what it is a view of.

    See Note [Fields shared by views].
    """
    if Declaration.of(type(view)) is None:
        return False
    if not hasattr(view, "from_plain"):  # it is written field by field, and these may be such views
        return any(shares_fields(inner) for inner in (getattr(view, name) for name in view.__tensor_flatten__()[0]))
    return is_part(view)


def is_part(tensor: Wrapper) -> bool:
    """Returns whether a wrapper is a view that shares an element of a field with the rest of what it is a view of."""
    return bool(shared_field(tensor, tensor.__tensor_flatten__()[0]))


def shared_field(tensor: torch.Tensor, names: Sequence[str]) -> str:
    """Returns the first of these fields that a view shares with the rest of what it is a view of; "" for none."""
    return next(iter(shared_fields(tensor, names)), "")


def shared_fields(tensor: torch.Tensor, names: Iterable[str]) -> list[str]:
    """Returns those of these fields that a view shares with the rest of what it is a view of."""
    base, _ = base_of(tensor)
    if base is None:  # as it is of nearly all
        return [name for name in names if name in _origin(tensor).lost]
    return _shared(tensor, base, names, _is_shared)


def _shared(
    view: torch.Tensor,
    base: torch.Tensor,
    names: Iterable[str],
    is_shared: Callable[[str, torch.Tensor, torch.Tensor], bool],
) -> list[str]:
    lost = _origin(base).lost
    return [name for name in names if name in lost or is_shared(name, view, base)]


def why_without_base(view: torch.Tensor, shared: Sequence[str]) -> str:
    """Returns why a view cannot be written, if it is one of a tensor that is not at hand; else ""."""
    base, _ = base_of(view)
    lost = _origin(view if base is None else base).lost
    return next(
        (
            f"{name} is shared with the rest of the tensor that this is a view of, and `torch.compile` hands over only "
            "the view: give it the whole tensor, and make the view inside"
            for name in shared
            if name in lost
        ),
        "",
    )


def shares_with(view: torch.Tensor, base: Wrapper) -> bool:
    """Returns whether a view shares an element of a field with what it leaves out of `base`."""
    return _shares(view, base, view.numel(), base.numel())


def _shares(view: torch.Tensor, base: Wrapper, of_view: int, of_base: int) -> bool:
    for name in base.__tensor_flatten__()[0]:
        if getattr(view, name).numel() * of_base > getattr(base, name).numel() * of_view:
            return True
    return False


def set_origin_if_shared(
    made: object, base: Wrapper, func: Operator, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Keeps how a view was made, or each of several, if it shares a field with the rest of its base.

    Of one that leaves no element out nothing needs to be kept, if `base` is no such view itself.
    """
    first = made[0] if isinstance(made, list) and made else made
    if type(first) is not type(base):  # none at all, or one that reads and writes through its base
        return
    of_view, of_base = first.numel(), base.numel()
    is_symbolic = type(of_view) is not int or type(of_base) is not int  # a write finds out then
    if ORIGIN in base.__dict__ or is_symbolic or _shares(first, base, of_view, of_base):
        set_origin(made, base, func, args, kwargs)


def set_origin(
    view: object, base: torch.Tensor, func: Operator, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Keeps what autograd does not know: that `view` is `func(base, *args, **kwargs)`, or the first of several such."""
    owner, before = base_of(base)
    for position, each in enumerate(view if isinstance(view, list | tuple) else [view]):
        if type(each) is type(base):
            chain = before.then(Step.of(func, args, kwargs, None if each is view else position))
            each.__dict__[ORIGIN] = Origin(base if owner is None else owner, chain)


def extend_origin(view: torch.Tensor, func: Operator, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Keeps that a view, which was changed in place as by `t_`, is `func(view, *args, **kwargs)` of what it was."""
    if origin := view.__dict__.get(ORIGIN):
        view.__dict__[ORIGIN] = origin._replace(chain=origin.chain.then(Step.of(func, args, kwargs)))


def base_of(view: torch.Tensor) -> tuple[Any, Chain]:
    """Returns the wrapper that a wrapper is a view of, or None for one that is no view, and what regenerates the
    view.
    """
    base, chain, _ = _origin(view)
    known: Any = _torch.autograd.base_of(view) if base is None else None
    if known is not None:
        base, chain = known, Chain()
        origin = _origin(known)
        if origin.base is not None:
            base, chain = origin.base, origin.chain
        chain = chain.then(FunctionStep(_torch.autograd.view_function(view)))
    return (base, chain) if type(base) is type(view) else (None, Chain())


def sharing_base(view: object) -> tuple[Any, Chain] | None:
    """Returns the base of a view that shares fields, or may for other sizes, and what regenerates the view.

    Args:
        view: Anything.

    Returns:
        None of all that is no such view, or lost what it is a view of.
    """
    if not isinstance(view, torch.Tensor) or ORIGIN not in view.__dict__:
        return None
    base, chain = base_of(view)
    if base is None:
        return None
    names = view.__tensor_flatten__()[0]  # type: ignore[attr-defined]
    is_symbolic = any(isinstance(size, torch.SymInt) for size in (*base.shape, *view.shape))
    return (base, chain) if is_symbolic or _shared(view, base, names, _is_shared_in_example) else None


def _is_shared(name: str, view: torch.Tensor, base: torch.Tensor) -> bool:
    """Returns whether an element of a field stands for elements of `base` that `view` has not."""
    inner, whole = getattr(view, name), getattr(base, name)
    return bool(inner.numel() * base.numel() > whole.numel() * view.numel())


def _is_shared_in_example(name: str, view: torch.Tensor, base: torch.Tensor) -> bool:
    """Returns the same of symbolic sizes, without a guard: what reads only does not depend on it."""
    inner, whole = getattr(view, name), getattr(base, name)
    try:
        held, of_base, of_whole, of_view = (_torch.symbolic.example_of(t.numel()) for t in (inner, base, whole, view))
    except TypeError:  # sizes depend on data
        return False
    return held * of_base > of_whole * of_view


def copy_origin(made: torch.Tensor, view: torch.Tensor) -> None:
    """Has a wrapper of the same fields, as `detach` makes it, be a view of the same."""
    if ORIGIN in view.__dict__:
        made.__dict__[ORIGIN] = view.__dict__[ORIGIN]
    else:
        made.__dict__.pop(ORIGIN, None)
