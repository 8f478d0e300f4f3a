"""`ViewOf`: holds the base and the view operators, for views that the fields of a class cannot express.

Note [Views that read through]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The fields of packed codes, of groups or of low-rank factors have no rows and columns of their own that a view could cut
out. Such a view holds the whole and the operators that made it. What it stands for is what these make of what the whole
stands for; and a write into it makes the whole dense, writes there, and has the whole take that in.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.plain_values import frozen
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.views import Step
from subclass_aot.kit.wrapper.base import WrapperTensor
from subclass_aot.kit.wrapper.declare.construct import assemble
from subclass_aot.kit.wrapper.declare.outer import Outer
from subclass_aot.kit.wrapper.layout.cuts import SEVERAL, WITHOUT_DIM, cuts_of
from subclass_aot.kit.wrapper.layout.shared_fields import base_of
from subclass_aot.kit.wrapper.serve import errors
from subclass_aot.kit.wrapper.serve.dense import dense
from subclass_aot.kit.wrapper.serve.dispatch import dispatch
from subclass_aot.kit.wrapper.serve.plain import make_view

aten: Any = torch.ops.aten

NamedStep = tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]
"""A step as contexts and files have it: an operator of `aten` by name, its other arguments, the named ones."""


class ViewOf(WrapperTensor):
    """A view of a wrapper that reads and writes through it. See Note [Views that read through].

    Rules of the class of the whole see such views only if that class has `ViewOf` among those that it accepts.

    Args:
        base: The whole.
        steps: How the view is made of it.
    """

    accepts = (WrapperTensor,)
    reads_through = True

    base: torch.Tensor
    steps: tuple[NamedStep, ...]

    @classmethod
    @_torch.dynamo.below_dynamo
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: AnyOperator, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        wholes: list[Any] = [type(arg.base) for arg in args if type(arg) is cls]
        of = next((whole for whole in wholes if cls in getattr(whole, "accepts", ())), None)
        return dispatch(cls, func, types, args, kwargs, of)

    @property
    def is_transposed(self) -> bool:
        """Whether it is what `t()` gives of a whole of two dimensions, and nothing else."""
        if len(self.steps) != 1 or self.steps[0][0] not in _TURNS or self.base.dim() != 2:
            return False  # what other steps hold may be symbols, which have no hash
        return self.steps in _TRANSPOSED

    def outer_metadata(self) -> Outer:
        base = self.base
        if self.is_transposed:  # as each product does, which need not be tried
            size, stride = base.size(), base.stride()
            return Outer.like(base, size=(size[1], size[0]), stride=(stride[1], stride[0]))
        blank = torch.empty_strided(base.size(), base.stride(), dtype=base.dtype, device="meta")
        view = _through(blank, self.steps)
        offset = base.storage_offset() * base.dtype.itemsize // view.dtype.itemsize + view.storage_offset()
        return Outer(view.size(), view.stride(), view.dtype, base.device, storage_offset=offset)

    def to_plain(self) -> torch.Tensor:
        return _through(_as_it_lies(self.base, self.steps), self.steps)

    def from_plain(self, plain: torch.Tensor) -> torch.Tensor:
        """Returns new values as they are: the whole takes them, see the rule for `copy_`."""
        return plain

    def resolve_conj(self) -> torch.Tensor:
        """Computes a conjugate, a dense tensor of its own; torch would give the view itself, which has no bit set."""
        return self._resolved("_conj.default", super().resolve_conj())

    def resolve_neg(self) -> torch.Tensor:
        """Computes a negative, as `resolve_conj` does a conjugate."""
        return self._resolved("_neg_view.default", super().resolve_neg())

    def _resolved(self, step: str, otherwise: torch.Tensor) -> torch.Tensor:
        return self.clone() if [name for name, *_ in self.steps].count(step) % 2 else otherwise

    def fsdp_pre_all_gather(
        self, mesh: object, outer_size: object, outer_stride: object, module: object, mp_policy: object
    ) -> Any:
        """Refuses: a part of a whole cannot travel without it."""
        declaration = Declaration.of(type(self.base))
        why = "what it declares by views= does not say how its rows are cut here"
        if declaration is None or declaration.views is None:
            why = 'it declares no views="broadcast", so nothing says what its rows are made of'
        raise errors.not_sharded(self.base, why, "declare it, if inner tensors have its rows")


_TRANSPOSED = {
    (("t.default", (), ()),),
    *((("transpose.int", dims, ()),) for dims in [(0, 1), (1, 0), (-2, -1), (-1, -2), (0, -1), (-1, 0)]),
    (("permute.default", ((1, 0),), ()),),
}

_TURNS = {steps[0][0] for steps in _TRANSPOSED}


def _as_it_lies(base: Any, steps: Sequence[NamedStep], is_copy: bool = False) -> torch.Tensor:
    """Returns a wrapper as a dense tensor, with the strides of the wrapper where a view counts by them; a copy if
    wanted.
    """
    plain = dense(base)
    if (is_copy or plain.stride() != base.stride()) and any(name in _BY_STRIDES for name, *_ in steps):
        return torch.empty_strided(base.shape, base.stride(), dtype=plain.dtype, device=plain.device).copy_(plain)
    return plain.clone() if is_copy else plain


_PARTS = "view_as_real.default"
_BY_STRIDES = {"as_strided.default", "view.default", "view.dtype", "_unsafe_view.default", "_reshape_alias.default"}


def _through(tensor: torch.Tensor, steps: Sequence[NamedStep]) -> torch.Tensor:
    for name, args, kwargs in steps:
        # For reading: real numbers have no bit that says that half of them are negative.
        if name == _PARTS and tensor.is_conj():
            tensor = tensor.resolve_conj()
        tensor = Step(_operator(name), args, kwargs)(tensor)
    return tensor


@functools.cache
def _name(func: Operator) -> str:
    """Returns how contexts and files have an operator of `aten`."""
    return str(func).removeprefix("aten.")


@functools.cache
def _operator(name: str) -> Operator:
    """Returns the operator of `aten` that a file or a context means."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload)  # type: ignore[no-any-return]


@make_view.put
def view_of(func: Operator, base: torch.Tensor, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """Returns the view `func(base, *args, **kwargs)`, or the views: those that `split` and `unbind` give are made one
    by one.

    Args:
        func: A view operator.
        base: A wrapper.
        args: The operator's arguments after the first.
        kwargs: Its keyword arguments.
    """
    if func in SEVERAL:
        cuts = cuts_of(func, base.shape, args, kwargs)
        if func in WITHOUT_DIM:
            return [view_of(aten.select.int, base, (cut.dim, cut.start), {}) for cut in cuts]
        return [view_of(aten.slice.Tensor, base, (cut.dim, cut.start, cut.end), {}) for cut in cuts]
    whole, steps = (base.base, base.steps) if isinstance(base, ViewOf) else (base.detach(), ())
    if func is aten.as_strided.default:
        root, _ = base_of(whole)
        whole = whole if root is None or steps else root.detach()
        args, kwargs = _within(whole, base, *args, **kwargs), {}  # type: ignore[arg-type]
    step = (_name(func), frozen(args), frozen(tuple(kwargs.items())))
    view = assemble(ViewOf, {"base": whole, "steps": (*steps, step)})  # which are what the constructor takes
    _torch.wrappers.alias_outer_storage(view, base)
    return view


def _within(
    whole: Any, base: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> tuple[object, ...]:
    """Returns the arguments of `as_strided` on a tensor that lies as `whole` does, and begins where its memory does.

    Args:
        whole: What the view is to read.
        base: The tensor of which a view is wanted: `whole` itself, a view of it, or what `whole` is a detached view of.
        size: The wanted sizes.
        stride: The wanted strides.
        storage_offset: The wanted offset, in elements of `base`; None for its own.

    Raises:
        OperatorRuleError: The view reaches elements that `whole` has not.
    """
    asked = base.storage_offset() if storage_offset is None else storage_offset
    offset = asked - whole.storage_offset() * whole.dtype.itemsize // base.dtype.itemsize
    if 0 in size:
        return size, stride, 0
    if not _has(whole, base.dtype.itemsize, size, stride, offset):
        given = (base, size, stride, storage_offset)
        why = f"it reaches elements that a tensor of {list(whole.shape)} with strides {whole.stride()} has not"
        raise errors.no_rule(type(whole), aten.as_strided.default, given, {}, why)
    return size, stride, offset


def _has(whole: torch.Tensor, itemsize: int, size: Sequence[int], stride: Sequence[int], offset: int) -> bool:
    """Returns whether a tensor has all elements of a view, which are of `itemsize` bytes and counted from its first."""
    held = _span(whole.shape, whole.stride())
    if offset < 0 or offset + _span(size, stride) > held * whole.dtype.itemsize // itemsize:
        return False
    if whole.numel() == held:
        return True
    if held > _MOST_LOOKED_AT or itemsize != whole.dtype.itemsize:
        return False
    with _torch.dispatch.disable_current_modes():
        there = torch.zeros(held, dtype=torch.bool)
        there.as_strided(whole.shape, whole.stride()).fill_(True)
        return bool(there.as_strided(size, stride, offset).all())


_MOST_LOOKED_AT = 2**24


def _span(size: Sequence[int], stride: Sequence[int]) -> int:
    """Returns how many elements lie from the first to the last of a tensor."""
    return 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))


@ViewOf.implements(aten.copy_.default)
def _(view: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    if not isinstance(view, ViewOf):
        return NotImplemented
    base: Any = view.base
    if not hasattr(base, "from_plain"):
        why = f"{type(base).__name__} has no from_plain to take in what is written into a view of it"
        raise errors.no_rule(type(base), aten.copy_.default, (view, source), {}, why)
    names = [name for name, *_ in view.steps]
    if _PARTS in names and names[: names.index(_PARTS)].count("_conj.default") % 2:
        why = "it is the real or the imaginary part of a conjugate: write into that of the tensor itself"
        raise errors.no_rule(type(base), aten.copy_.default, (view, source), {}, why)
    plain = _as_it_lies(base, view.steps, is_copy=True)
    _through(plain, view.steps).copy_(dense(source) if hasattr(source, "to_plain") else source)
    base.copy_(plain)
    return view


def _dense(func: Operator) -> None:
    """Has `func` give a dense tensor for a view, since a part of a whole cannot be a tensor of the class by itself."""

    @ViewOf.implements(func)
    def _(view: ViewOf, *args: object, **kwargs: object) -> Any:
        return func(view.to_plain(), *args, **kwargs)


for _func in (
    aten.clone.default,
    aten._to_copy.default,
    aten.empty_like.default,
    aten.new_zeros.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
):
    _dense(_func)
