"""Traced fakes of the tensors of a call, with symbols for sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.sizes.dynamic_sizes import DynamicSizes
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.flatten import (
    AbsentMeta,
    ContainerMeta,
    FlattenPlan,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
)
from subclass_aot.meta import MetaTensor, Spec, new_leaf
from subclass_aot.meta.symbols import Number, Symbols, is_symbolic


def symbolic_fakes(arguments: Arguments, dynamic: DynamicSizes, symbols: Symbols) -> list[Any]:
    """Makes for each tensor of a call one of its class without data, with symbols for sizes that are dynamic."""
    maker = _FakeMaker(dynamic, symbols)
    metas = arguments.plan.metas
    fakes = [
        maker.make(value, meta, arguments.path_of(i), {})
        for i, (value, meta) in enumerate(zip(arguments.values, metas, strict=True))
    ]
    for fake, value in zip(fakes, arguments.values, strict=True):
        if value.requires_grad and _torch.wrappers.may_tell_requires_grad(type(value)):
            fake.requires_grad_()  # which the context of the class may repeat
    return fakes


def fake_with_sizes(tensor: torch.Tensor, shape: Sequence[Number]) -> Any:
    """Makes a fake of a gradient, with the sizes of the result that it belongs to.

    Args:
        tensor: A gradient.
        shape: The sizes of the result, symbolic ones among them.
    """
    inherited = {dim: _Outer(tensor.shape[dim], n, True) for dim, n in enumerate(shape) if is_symbolic(n)}
    if not inherited:
        return MetaTensor.like(tensor)
    (meta,) = FlattenPlan.of([tensor]).metas
    return _FakeMaker(DynamicSizes(), Symbols()).make(tensor, meta, "", inherited)


class _Outer(NamedTuple):
    """A symbolic dimension of the wrapper around a tensor.

    Attributes:
        hint: Its size in the call.
        number: The symbol.
        marked: Whether the user marked it, so that inner tensors of that size follow.
    """

    hint: int
    number: Number
    marked: bool


_Inherited = Mapping[int, _Outer]
"""The symbolic dimensions of the wrapper around a tensor."""


class _FakeMaker:
    """Makes fakes. A size that a wrapper and its inner tensors have at one dimension is one symbol."""

    def __init__(self, dynamic: DynamicSizes, symbols: Symbols) -> None:
        self.dynamic = dynamic
        self.symbols = symbols

    def make(self, value: Any, meta: InnerMeta, path: str, inherited: _Inherited) -> Any:
        """Makes a fake of what is described by `meta`; what is no tensor stays as it is."""
        match meta:
            case PlainTensorMeta():
                if not isinstance(value, torch.Tensor):
                    return value
                leaf = self.leaf(value, path, inherited)
                return (
                    _torch.plain_subclasses.as_class(leaf, meta.cls)
                    if _torch.plain_subclasses.is_plain_subclass(meta.cls)
                    else leaf
                )
            case ContainerMeta():
                parts = {
                    key: self.make(value[key], m, path + meta.step(key), inherited) for key, m in meta.items.items()
                }
                return parts if meta.cls is dict else meta.cls(parts.values())
            case AbsentMeta() | OpaqueMeta():
                return value
            case SubclassCreationMeta():
                return self.wrapper(value, meta, path, inherited)

    def leaf(self, value: torch.Tensor, path: str, inherited: _Inherited) -> MetaTensor:
        spec = value.meta_spec if isinstance(value, MetaTensor) else Spec.of(value)
        size, stride = self.geometry(value, path, inherited)
        return new_leaf(Spec.make(size, stride, spec.offset, spec.dtype, spec.device, spec.layout))

    def wrapper(self, value: Any, meta: SubclassCreationMeta, path: str, inherited: _Inherited) -> Any:
        size, stride = self.geometry(value, path, inherited)
        marked = self.dynamic.marked.get(path, ())
        given = dict(inherited)
        for dim, number in enumerate(size):
            if is_symbolic(number):
                follows = dim in marked or dim in inherited and inherited[dim].marked
                given[dim] = _Outer(value.shape[dim], number, follows)
        jagged = _torch.wrappers.is_jagged(meta.cls)
        inner = {
            name: self.make(getattr(value, name), part, path + meta.step(name), given)
            if not jagged or name != _torch.wrappers.JAGGED_VALUES
            else self.values_of_jagged(value, path + meta.step(name))
            for name, part in meta.attrs.items()
        }
        if _has_outer_rule(value, meta):  # it computes the outer size, and gets no other
            return value.__tensor_unflatten__(inner, meta.context_resized(size), None, None)
        return value.__tensor_unflatten__(inner, meta.context_resized(size), torch.Size(size), stride)  # type: ignore[arg-type]  # symbols, too

    def values_of_jagged(self, value: Any, path: str) -> MetaTensor:
        """Makes the elements. Only their number may be a symbol: torch multiplies nested ints by known strides."""
        (values, _), dim = _torch.wrappers.parts_of_jagged(value), _torch.wrappers.ragged_dim_of(value) - 1
        dims = self.dynamic.sizes.get(path, set()) & {dim} if values.stride(dim) == values[0].numel() else set()
        known = _FakeMaker(DynamicSizes({path: dims}, {}, self.dynamic.marked), self.symbols)
        return known.leaf(values, path, {})

    def geometry(
        self, value: torch.Tensor, path: str, inherited: _Inherited
    ) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """Returns size and stride of a fake."""
        if not _has_numbers(value):
            return tuple(value.shape), value.stride()
        dims, marked = self.dynamic.sizes.get(path, ()), self.dynamic.marked.get(path, {})
        size: list[Number] = list(value.shape)
        for dim, hint in enumerate(value.shape):
            known_hint, known, follows = inherited.get(dim, _Outer(-1, hint, False))
            if known_hint == hint and (follows or dim in dims):  # the wrapper has this size at this dimension
                size[dim] = known
            elif dim in dims:
                # An inner tensor may have a size of the wrapper elsewhere: equal numbers are taken for one symbol.
                alike = [outer.number for outer in inherited.values() if outer.hint == hint]
                size[dim] = alike[0] if alike else self.symbols.size(hint, f"{path}.size({dim})", marked.get(dim))
        return tuple(size), self.strides(value, tuple(size), path)

    def strides(self, value: torch.Tensor, size: tuple[Number, ...], path: str) -> tuple[Number, ...]:
        """Returns strides as products of sizes where the example has them so, from the innermost dimension outwards."""
        hints, steps = tuple(value.shape), value.stride()
        stride: list[Number] = list(steps)
        expected_hint, expected = 1, 1
        for dim in sorted(range(len(hints)), key=lambda d: (steps[d], -d)):
            if steps[dim] == expected_hint:
                stride[dim] = expected
            elif dim in self.dynamic.strides.get(path, ()):
                stride[dim] = self.symbols.size(steps[dim], f"{path}.stride({dim})")
            if steps[dim]:
                expected_hint, expected = steps[dim] * hints[dim], stride[dim] * size[dim]  # type: ignore[assignment]
        return tuple(stride)


def _has_numbers(value: torch.Tensor) -> bool:
    """Returns whether all sizes are numbers: not so of a jagged tensor, whose ragged size is none."""
    return all(type(n) is int for n in value.shape)


def _has_outer_rule(value: Any, meta: SubclassCreationMeta) -> bool:
    """Returns whether the class knows its outer size from its inner tensors, and this instance has it."""
    if Declaration.of(meta.cls) is None:
        return False
    inner = {name: getattr(value, name) for name in meta.attrs}
    fake = value.__tensor_unflatten__(inner, meta.context, None, None)
    return bool((fake.shape, fake.stride()) == (value.shape, value.stride()))


def plan_of_fakes(fakes: list[Any], arguments: Arguments) -> FlattenPlan:
    """Says how tensors of these sizes are made of leaves; symbolic sizes of wrappers are leaves, too."""
    names = [arguments.path_of(i) for i in range(len(fakes))]
    return FlattenPlan.of(fakes, where="inputs", names=names, are_given=True)
