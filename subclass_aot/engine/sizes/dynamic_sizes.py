"""Decides which sizes of a call are symbols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from subclass_aot.engine.call import Arguments, HeldPlace, ModulePlace
from subclass_aot.errors import DynamicSizeError, TraceError
from subclass_aot.kit.flatten import FlattenPlan, InnerMeta, walk
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import Bounds

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


def first_results(dims: Sequence[Sequence[tuple[str, tuple[int, ...]]]]) -> Callable[..., None]:
    """Returns a function of results that notes which of their sizes are symbols, of those of the first call alone.

    What compiles for such a result has symbols there at once, as if it were marked. A function is mostly compiled for
    the first results of another, so that later calls need not pay for a note.

    Args:
        dims: Which dims of each result are symbols, and of its inner tensors, by the path from it.
    """
    left = [dims]

    def note(*results: torch.Tensor) -> None:
        for symbolic in left[:]:  # a copy: another thread may be here, too
            left.clear()
            for result, by_path in zip(results, symbolic, strict=True):
                parts = {path: part for path, part, _ in walk(result, FlattenPlan.read([result])[0].metas[0])}
                _noted.update((parts[path], dims) for path, dims in by_path)

    return note


@dataclass(frozen=True, slots=True)
class DynamicSizes:
    """The sizes and strides of a call that are symbols.

    Attributes:
        sizes: By the path of a tensor, inner ones too, its symbolic dimensions.
        strides: Likewise, strides that follow from no size.
        marked: Likewise, dimensions that are marked, each with its limits. They are among `sizes`.
    """

    sizes: dict[str, set[int]] = field(default_factory=dict)
    strides: dict[str, set[int]] = field(default_factory=dict)
    marked: dict[str, dict[int, Bounds]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.sizes.values()) or any(self.strides.values())

    def without(self, paths: Collection[str]) -> DynamicSizes:
        """Makes every number of some tensors, and of those inside them, known; of all if none is named."""
        if not paths:
            return DynamicSizes()

        def kept(path: str) -> bool:
            return not any(path.startswith(p) and path[len(p) : len(p) + 1] in ("", ".", "[") for p in paths)

        return DynamicSizes(
            {path: dims for path, dims in self.sizes.items() if kept(path)},
            {path: dims for path, dims in self.strides.items() if kept(path)},
            {path: dims for path, dims in self.marked.items() if kept(path)},
        )

    def without_places(self, places: Collection[str]) -> DynamicSizes:
        """Makes some sizes and strides known, and all numbers of the tensors inside of these.

        Args:
            places: Where they are read, as `args[0].size(1)`.
        """
        found = DynamicSizes(
            {path: set(dims) for path, dims in self.sizes.items()},
            {path: set(dims) for path, dims in self.strides.items()},
            {path: dict(marks) for path, marks in self.marked.items()},
        )
        tables: tuple[dict[str, Any], ...] = found.sizes, found.strides, found.marked
        for place in places:
            path, _, last = place.rpartition(".")
            kind, dim = last.removesuffix(")").split("(")
            (found.strides if kind == "stride" else found.sizes).get(path, set()).discard(int(dim))
            found.marked.get(path, {}).pop(int(dim), None)
            for table in tables:
                for inside in [p for p in table if p.startswith(path) and p[len(path) : len(path) + 1] in (".", "[")]:
                    del table[inside]
        return found


def marked_sizes(arguments: Arguments) -> DynamicSizes:
    """Returns the sizes of a call that the user marked, and those that were symbols where another function gave the
    tensor. Of parameters and buffers the latter are left out: their sizes seldom change.
    """
    found = DynamicSizes()
    for path, tensor, is_state in tensors_of(arguments):
        noted = () if is_state else _noted.get(tensor, ())
        marks: dict[int, Bounds] = dict.fromkeys(noted, (0, None)) | _marks.get(tensor, {})
        if marks:
            found.marked[path] = marks
            found.sizes[path] = set(marks)
    return found


class CallTensor(NamedTuple):
    """A tensor of a call, outer or inner.

    Attributes:
        path: Where the user finds it.
        tensor: It.
        is_state: Whether it is a parameter or buffer, or the function itself holds it: the sizes of such seldom change.
    """

    path: str
    tensor: torch.Tensor
    is_state: bool


def tensors_of(arguments: Arguments) -> Iterator[CallTensor]:
    """Yields every tensor of a call, outer ones and inner ones. Opaque values are left out."""
    owned = {
        position
        for place, position in arguments.placed
        if isinstance(place, ModulePlace)
        or (isinstance(place, HeldPlace) and (place.pinned or arguments.objects.tensors[place.number].of_generator))
    }
    for i, (value, meta) in enumerate(zip(arguments.values, arguments.plan.metas, strict=True)):
        is_state = i in owned or isinstance(value, torch.nn.Parameter)
        for path, tensor in _parts(value, meta, arguments.path_of(i)):
            yield CallTensor(path, tensor, is_state)


def _parts(value: object, meta: InnerMeta, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors in a tree, outer ones first, with their paths.

    Raises:
        TraceError: One is a strided nested tensor.
    """
    for where, part, _ in walk(value, meta, path):
        if isinstance(part, torch.Tensor):
            if part.is_nested and part.layout is torch.strided:  # it has no sizes to speak of
                try:
                    Spec.of(part)  # which refuses it
                except TraceError as error:
                    raise TraceError(f"{where}: {error}") from None
            yield where, part


_marks: MutableMapping[torch.Tensor, dict[int, Bounds]] = WeakTensorKeyDictionary()
"""Dimensions that users marked, each with its limits."""

_noted: MutableMapping[torch.Tensor, tuple[int, ...]] = WeakTensorKeyDictionary()
"""Dimensions of results that were symbols where these were computed."""
