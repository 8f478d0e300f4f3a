"""From values to the metas that say how to rebuild them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import warn
from subclass_aot.base._torch.wrappers import is_opaque_value, is_traceable_wrapper_subclass, mirrors_requires_grad
from subclass_aot.errors import PlanError, UnreadableWrapperError
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.flatten.contexts import patterned
from subclass_aot.kit.flatten.metas import (
    SYMBOLIC,
    AbsentMeta,
    ContainerMeta,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    ValueMeta,
    frozen_sizes,
)


def create_subclass_meta(
    values: Iterable[Any], *, count_symints: bool = True, where: str = "args", names: Sequence[str] = ()
) -> list[ValueMeta]:
    """Describes each value: how many flat slots it takes, where they start, and how to rebuild it from them.

    Args:
        values: Dense tensors, wrapper tensors, and anything else; what is no wrapper takes one slot.
        count_symints: Whether symbolic sizes and strides of wrappers take slots of their own (not for tangents).
        where: What errors call the list.
        names: What errors call each value, where that is not its place in the list.

    Returns:
        One meta for each value.

    Raises:
        UnreadableWrapperError: An inner tensor requires grad, is missing, or is no tensor.
        PlanError: A symbolic size has no slot, and no inner tensor to take it from.

    >>> create_subclass_meta([torch.ones(2), 7])
    [PlainTensorMeta(unwrapped_idx=0, cls=<class 'torch.Tensor'>, dtype=torch.float32), \
PlainTensorMeta(unwrapped_idx=1, cls=<class 'int'>, dtype=None)]
    """
    return describe_and_read(values, count_symints, where, names)[0]


def describe_and_read(
    values: Iterable[object], count_symints: bool, where: str, names: Sequence[str], are_given: bool = False
) -> tuple[list[ValueMeta], list[Any]]:
    """Gives what `create_subclass_meta` does, and beside it what stands in each flat slot, all found in one walk.

    Args:
        values: As there.
        count_symints: As there.
        where: As there.
        names: As there.
        are_given: Whether they are inputs of a call. Of a class of others, inner tensors may require grad then: there
            is one warning for the class.
    """
    walk = _Walk(count_symints, refuse=_warn_once if are_given else _refuse)
    return walk.values(values, where, names), walk.slots


def read_leaves(value: object, name: str) -> list[Any]:
    """Returns the value of each flat slot of one value; no guard is put on symbolic numbers in its context."""
    walk = _Walk(count_symints=True, context_of=lambda context, size, stride: context, refuse=_refuse_declared)
    walk.values([value], "", [name])
    return walk.slots


def _refuse(where: str, owner: type) -> None:
    """Refuses an inner tensor that requires grad, of a wrapper of class `owner`."""
    raise UnreadableWrapperError(INNER_REQUIRES_GRAD.format(where=where, cls=owner.__name__))


def _refuse_declared(where: str, owner: type) -> None:
    """Refuses it unless the class is one of others, whose constructors may take such tensors."""
    if Declaration.of(owner) is not None:
        _refuse(where, owner)


def _warn_once(where: str, owner: type) -> None:
    """Does what `_refuse_declared` does, and warns of each class of others once."""
    _refuse_declared(where, owner)
    if owner not in _warned:
        _warned.add(owner)
        warn(INNER_GETS_NO_GRADIENT.format(where=where, cls=owner.__name__))


_warned = weakref.WeakSet[type]()


class _Walk:
    """One pass over values that fills flat slots in order. See Note [Leaf order].

    A meta holds no symbolic number, and a context has no slots for any. See Note [Sizes in contexts].
    """

    def __init__(
        self,
        count_symints: bool,
        context_of: Callable[[Any, Any, Any], Any] = patterned,
        refuse: Callable[[str, type], None] = _refuse,
    ) -> None:
        self.count_symints = count_symints
        self.context_of = context_of
        self.refuse = refuse
        self.slots: list[Any] = []

    def values(self, values: Iterable[object], where: str, names: Sequence[str]) -> list[ValueMeta]:
        return [
            self.wrapper(value, names[i] if names else f"{where}[{i}]")
            if isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value)
            else self.plain(value)
            for i, value in enumerate(values)
        ]

    def take(self, value: object) -> int:
        self.slots.append(value)
        return len(self.slots) - 1

    def plain(self, value: object) -> PlainTensorMeta:
        if not isinstance(value, torch.Tensor):
            return PlainTensorMeta(self.take(value), type(value))
        # A plan made on fake tensors serves real ones: those of torch's tracers are dense.
        cls = type(value) if _torch.plain_subclasses.is_plain_subclass(type(value)) else torch.Tensor
        if type(value) is torch.nn.Parameter:
            cls = torch.nn.Parameter
        return PlainTensorMeta(self.take(_torch.plain_subclasses.leaf_of(value)), cls, value.dtype)

    def wrapper(self, value: torch.Tensor, where: str) -> SubclassCreationMeta:
        start = len(self.slots)
        names, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
        inner = {name: _inner_value(value, name, where) for name in names}
        step, cls = SubclassCreationMeta.step, type(value)
        attrs = {name: self.inner(part, where + step(name), cls) for name, part in inner.items()}
        size, stride = frozen_sizes(value.size()), frozen_sizes(value.stride())
        numbers = zip((*size, *stride), (*value.size(), *value.stride()), strict=True)
        symbols = [number for known, number in numbers if known is SYMBOLIC]
        symbols_from = None
        if self.count_symints:
            self.slots += symbols
        elif symbols:
            symbols_from = _giver_of_symbols(inner, len(size), where)
        (storage_offset,) = frozen_sizes([value.storage_offset()])
        return SubclassCreationMeta(
            flat_tensor_start_idx=start,
            arg_count=len(self.slots) - start,
            included_subclass_symints=self.count_symints,
            attrs=attrs,
            cls=cls,
            context=self.context_of(context, value.size(), value.stride()),
            outer_size=size,
            outer_stride=stride,
            storage_offset=storage_offset,
            dtype=value.dtype,
            device=value.device,
            layout=value.layout,
            symbols_from=symbols_from,
        )

    def inner(self, value: object, where: str, owner: type) -> InnerMeta:
        """Describes what stands in one inner attribute of a wrapper of class `owner`."""
        if isinstance(value, torch.Tensor):
            if value.requires_grad and not mirrors_requires_grad(owner):
                self.refuse(where, owner)
            return self.wrapper(value, where) if is_traceable_wrapper_subclass(value) else self.plain(value)
        if value is None:
            return AbsentMeta()
        if type(value) in (list, tuple, dict):
            start = len(self.slots)
            items = {key: self.inner(part, where + ContainerMeta.step(key), owner) for key, part in _items(value)}
            return ContainerMeta(len(self.slots) - start, type(value), items)
        if is_opaque_value(value):
            return OpaqueMeta(self.take(value))
        raise UnreadableWrapperError(INNER_NOT_TENSOR.format(where=where, cls=owner.__name__, got=type(value).__name__))


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    return iter(container.items()) if type(container) is dict else enumerate(container)


def _inner_value(value: object, name: str, where: str) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        raise UnreadableWrapperError(INNER_MISSING.format(where=where, cls=type(value).__name__, name=name)) from None


def _giver_of_symbols(inner: dict[str, Any], rank: int, where: str) -> str:
    for name, part in inner.items():
        if isinstance(part, torch.Tensor) and part.dim() == rank:
            return name
    raise PlanError(NO_SYMBOLS.format(where=where, rank=rank))


INNER_REQUIRES_GRAD = """\
{where}: this inner tensor of a {cls} requires grad.
The outer tensor carries autograd; a gradient for an inner tensor would be lost without a word.
Instead of   {cls}(inner)   with an inner tensor that requires grad
write        {cls}(inner.detach()).requires_grad_()"""

INNER_GETS_NO_GRADIENT = """\
{where}: this inner tensor of a {cls} requires grad, and gets no gradient, as in eager mode.
The outer tensor carries autograd, which never looks inside. The program is compiled as it is.
Instead of   {cls}(inner)   with an inner tensor that requires grad
write        {cls}(inner.detach()).requires_grad_()"""

INNER_NOT_TENSOR = """\
{where}: {cls}.__tensor_flatten__ names this attribute among its inner tensors, but it is of type {got}.
An inner attribute is a tensor, a list, tuple or dict of tensors, `None`, or an opaque type registered with torch.
Return anything else as part of the context, the second result of __tensor_flatten__."""

INNER_MISSING = """\
{where}: {cls}.__tensor_flatten__ names {name!r}, but this instance has no such attribute.
Leave an absent optional tensor out of the names, or set it in the constructor."""

NO_SYMBOLS = """\
{where}: a symbolic size has no slot in the flat list (count_symints=False), and no inner tensor
has the outer rank {rank} to take it from. Describe this value with count_symints=True."""
