"""Which sizes of a call are symbols, and traced fakes that have them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from subclass_aot import _torch
from subclass_aot.call.arguments import Arguments, HeldPlace, ModulePlace
from subclass_aot.declaration import Declaration
from subclass_aot.errors import DynamicSizeError, TraceError
from subclass_aot.flatten import (
    AbsentMeta,
    ContainerMeta,
    FlattenPlan,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    walk,
)
from subclass_aot.meta import STRIDED_NESTED, MetaTensor, Spec, new_leaf
from subclass_aot.symbols import Bounds, Number, Symbols, is_symbolic

_NO_SUCH_DIM = """mark_dynamic: the tensor has {rank} dimensions, so dim {dim} is none of them.
  Its shape: {shape}
  Instead:   a dim from {low} to {high}."""

_WRONG_BOUNDS = """mark_dynamic: size({dim}) is {size}, which is not from min={least} to max={most}.
  Instead: mark the tensor with limits that it keeps itself."""


def mark_dynamic(tensor: torch.Tensor, dim: int, *, min: int | None = None, max: int | None = None) -> None:
    """Says that a size will change between calls, so that it is symbolic from the first trace on.

    The mark belongs to this tensor object; nothing of it is changed. For a wrapper, inner tensors that have the same
    size in the same dimension follow.

    Args:
        tensor: An argument of a compiled function, or an inner tensor of one.
        dim: The dimension; negative ones count from the end.
        min: The least size that will come. Sizes of zero and one are always compiled on their own.
        max: The greatest size that will come.

    Raises:
        DynamicSizeError: There is no such dimension, or the tensor itself is outside the limits.

    >>> from subclass_aot import aot_compile
    >>> x = torch.ones(4, 3)
    >>> mark_dynamic(x, 0)
    >>> double = aot_compile(lambda x: x * 2)
    >>> double(x).shape, double(torch.ones(9, 3)).shape, double.recompiles
    (torch.Size([4, 3]), torch.Size([9, 3]), [])
    """
    rank = tensor.dim()
    if not -rank <= dim < rank:
        shape = list(tensor.shape)
        raise DynamicSizeError(_NO_SUCH_DIM.format(rank=rank, dim=dim, shape=shape, low=-rank, high=rank - 1))
    least = 0 if min is None else min
    size = tensor.shape[dim]
    if size < least or max is not None and size > max:
        raise DynamicSizeError(_WRONG_BOUNDS.format(dim=dim, size=size, least=least, most=max))
    _marks.setdefault(tensor, {})[dim % rank] = least, max


@dataclass(frozen=True, slots=True)
class DynamicSizes:
    """The sizes and strides of a call that are symbols.

    Attributes:
        sizes: By the path of a tensor, inner ones too, its symbolic dimensions.
        strides: Likewise, strides that follow from no size.
        marked: Likewise, dimensions that the user marked, each with its limits. They are among `sizes`.
    """

    sizes: dict[str, set[int]] = field(default_factory=dict)
    strides: dict[str, set[int]] = field(default_factory=dict)
    marked: dict[str, dict[int, Bounds]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.sizes.values()) or any(self.strides.values())

    def without(self, paths: Collection[str]) -> DynamicSizes:
        """The same, with every number of some tensors, and of those inside them, known; of all if none is named."""
        if not paths:
            return DynamicSizes()

        def kept(path: str) -> bool:
            return not any(path.startswith(p) and path[len(p) : len(p) + 1] in ("", ".", "[") for p in paths)

        return DynamicSizes(
            {path: dims for path, dims in self.sizes.items() if kept(path)},
            {path: dims for path, dims in self.strides.items() if kept(path)},
            {path: dims for path, dims in self.marked.items() if kept(path)},
        )


def marked_sizes(arguments: Arguments) -> DynamicSizes:
    """The sizes of a call that the user marked."""
    found = DynamicSizes()
    for path, tensor, _ in tensors_of(arguments):
        marks = _marks.get(tensor)
        if marks:
            found.marked[path] = dict(marks)
            found.sizes[path] = set(marks)
    return found


def tensors_of(arguments: Arguments) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Every tensor of a call, outer ones and inner ones: its path, itself, and whether it is state.

    State are parameters and buffers, and what the function itself holds: their sizes seldom change.

    Opaque values are left out.
    """
    owned = {
        position
        for place, position in zip(arguments.places, arguments.value_at, strict=True)
        if isinstance(place, ModulePlace) or isinstance(place, HeldPlace) and place.pinned
    }
    for i, (value, meta) in enumerate(zip(arguments.values, arguments.plan().metas, strict=True)):
        is_state = i in owned or isinstance(value, torch.nn.Parameter)
        for path, tensor in _parts(value, meta, arguments.path_of(i)):
            yield path, tensor, is_state


def symbolic_fakes(arguments: Arguments, dynamic: DynamicSizes, symbols: Symbols) -> list[Any]:
    """For each tensor of a call, one of its class without data, with symbols for sizes as asked for."""
    maker = _FakeMaker(dynamic, symbols)
    metas = arguments.plan().metas
    return [
        maker.make(value, meta, arguments.path_of(i), {})
        for i, (value, meta) in enumerate(zip(arguments.values, metas, strict=True))
    ]


def fake_with_sizes(tensor: Any, shape: Sequence[Number]) -> Any:
    """A fake of a gradient, with the sizes of the result that it belongs to.

    Args:
        tensor: A gradient.
        shape: The sizes of the result, symbolic ones among them.
    """
    inherited = {dim: (tensor.shape[dim], n, True) for dim, n in enumerate(shape) if is_symbolic(n)}
    if not inherited:
        return MetaTensor.like(tensor)
    (meta,) = FlattenPlan.of([tensor]).metas
    return _FakeMaker(DynamicSizes(), Symbols()).make(tensor, meta, "", inherited)


_Inherited = Mapping[int, tuple[int, Number, bool]]
"""For symbolic dimensions of the wrapper around a tensor: the size, the symbol, and whether the user marked it."""


class _FakeMaker:
    def __init__(self, dynamic: DynamicSizes, symbols: Symbols) -> None:
        self.dynamic = dynamic
        self.symbols = symbols

    def make(self, value: Any, meta: Any, path: str, inherited: _Inherited) -> Any:
        if isinstance(meta, PlainTensorMeta):
            return self.leaf(value, path, inherited) if isinstance(value, torch.Tensor) else value
        if isinstance(meta, ContainerMeta):
            parts = {key: self.make(value[key], m, path + meta.step(key), inherited) for key, m in meta.items.items()}
            return parts if meta.cls is dict else meta.cls(parts.values())
        if isinstance(meta, AbsentMeta | OpaqueMeta):
            return value
        return self.wrapper(value, meta, path, inherited)

    def leaf(self, value: torch.Tensor, path: str, inherited: _Inherited) -> MetaTensor:
        spec = value.spec if isinstance(value, MetaTensor) else Spec.of(value)
        size, stride = self.geometry(value, path, inherited)
        return new_leaf(Spec.make(size, stride, spec.offset, spec.dtype, spec.device, spec.layout))

    def wrapper(self, value: Any, meta: SubclassCreationMeta, path: str, inherited: _Inherited) -> Any:
        size, stride = self.geometry(value, path, inherited)
        marked = self.dynamic.marked.get(path, ())
        given = dict(inherited)
        for dim, number in enumerate(size):
            if is_symbolic(number):
                follows = dim in marked or dim in inherited and inherited[dim][2]
                given[dim] = value.shape[dim], number, follows
        jagged = _torch.is_jagged(meta.cls)
        inner = {
            name: self.make(getattr(value, name), part, path + meta.step(name), given)
            if not jagged or name != _torch.JAGGED_VALUES
            else self.values_of_jagged(value, path + meta.step(name))
            for name, part in meta.attrs.items()
        }
        if _has_outer_rule(value, meta):
            return value.__tensor_unflatten__(inner, meta.context, None, None)
        return value.__tensor_unflatten__(inner, meta.context, size, stride)

    def values_of_jagged(self, value: Any, path: str) -> MetaTensor:
        """Of the elements, only their number may be a symbol: torch multiplies nested ints by known strides."""
        values, dim = value._values, value._ragged_idx - 1
        dims = self.dynamic.sizes.get(path, set()) & {dim} if values.stride(dim) == values[0].numel() else set()
        known = _FakeMaker(DynamicSizes({path: dims}, {}, self.dynamic.marked), self.symbols)
        return known.leaf(values, path, {})

    def geometry(
        self, value: torch.Tensor, path: str, inherited: _Inherited
    ) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """Size and stride of a fake."""
        if not _has_numbers(value):
            return tuple(value.shape), value.stride()
        dims, marked = self.dynamic.sizes.get(path, ()), self.dynamic.marked.get(path, {})
        size: list[Number] = list(value.shape)
        for dim, hint in enumerate(value.shape):
            known_hint, known, follows = inherited.get(dim, (None, hint, False))
            if known_hint == hint and (follows or dim in dims):
                size[dim] = known
            elif dim in dims:
                alike = [number for n, number, _ in inherited.values() if n == hint]
                size[dim] = alike[0] if alike else self.symbols.size(hint, f"{path}.size({dim})", marked.get(dim))
        return tuple(size), self.strides(value, tuple(size), path)

    def strides(self, value: torch.Tensor, size: tuple[Number, ...], path: str) -> tuple[Number, ...]:
        """Strides as products of sizes where the example has them so, from the innermost dimension outwards."""
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
    """False for a jagged tensor, whose ragged size is no number."""
    return all(type(n) is int for n in value.shape)


def _has_outer_rule(value: Any, meta: SubclassCreationMeta) -> bool:
    """Whether the class tells its outer size from its inner tensors, and this instance has it."""
    if Declaration.of(meta.cls) is None:
        return False
    inner = {name: getattr(value, name) for name in meta.attrs}
    fake = value.__tensor_unflatten__(inner, meta.context, None, None)
    return bool((fake.shape, fake.stride()) == (value.shape, value.stride()))


def _parts(value: torch.Tensor, meta: InnerMeta, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    for where, part, _ in walk(value, meta, path):
        if isinstance(part, torch.Tensor):
            if part.is_nested and part.layout is torch.strided:  # it has no sizes to speak of
                raise TraceError(f"{where}: {STRIDED_NESTED}")
            yield where, part


def plan_of_fakes(fakes: list[Any], arguments: Arguments) -> FlattenPlan:
    """How tensors of these sizes are made of leaves; symbolic sizes of wrappers are leaves, too."""
    names = [arguments.path_of(i) for i in range(len(fakes))]
    return FlattenPlan.of(fakes, where="inputs", names=names)


_marks: Any = WeakTensorKeyDictionary()
