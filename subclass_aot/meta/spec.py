"""`Spec`: the metadata of a dense tensor, without the tensor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.later import Registry
from subclass_aot.errors import TraceError
from subclass_aot.meta import strides
from subclass_aot.meta.strided_sets import Term, TooHard, covers, has_common_place, has_place_twice
from subclass_aot.meta.symbols import Number, SizesMustBeKnown, cache_of, key_of, plain, solver_in


class Spec:
    """Size, stride, offset, dtype, device and layout of a dense tensor: interned and immutable.

    Two equal specs are one object, so they compare and hash by identity. A spec holds no tensor. In a trace with
    symbolic sizes its numbers may be `torch.SymInt`s; such specs are interned by expression and live as long as the
    trace. See Note [Symbolic sizes].

    Attributes:
        size: Sizes, as a tuple of ints.
        stride: Strides in elements, as long as `size`.
        offset: Storage offset in elements.
        dtype: Element type.
        device: Where the data would be.
        layout: Memory layout; dense tensors have `torch.strided`.
        solver: What the symbols belong to; None where every number is known.

    >>> spec = Spec.make((2, 3), (3, 1))
    >>> spec is Spec.of(torch.zeros(2, 3)), spec.nbytes
    (True, 24)
    """

    __slots__ = ("size", "stride", "offset", "dtype", "device", "layout", "solver", "_blank_args")

    size: tuple[Number, ...]
    stride: tuple[Number, ...]
    offset: Number
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    solver: Any
    _blank_args: tuple[object, ...]
    """What a leaf of this spec is made with."""

    def __new__(cls) -> Spec:
        raise TypeError("Spec() is not called directly: write Spec.of(tensor) or Spec.make(size, stride, ...).")

    @staticmethod
    def make(
        size: tuple[Number, ...],
        stride: tuple[Number, ...],
        offset: Number = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device = torch.device("cpu"),
        layout: torch.layout = torch.strided,
    ) -> Spec:
        """Returns the one spec with these values."""
        key = (size, stride, offset, dtype, device, layout)
        try:
            spec = _interned.get(key)
        except TypeError:  # a number without a hash: a symbolic one
            return _symbolic(size, stride, offset, dtype, device, layout)
        return _interned.setdefault(key, _new(key, None)) if spec is None else spec

    @staticmethod
    def of(tensor: torch.Tensor, device: torch.device | None = None) -> Spec:
        """Returns the spec of `tensor`, on `device` if one is given.

        Raises:
            TraceError: For sparse layouts, nested tensors of the layout `torch.strided`, and lazily conjugated or
                negated tensors.
        """
        if tensor.is_nested and tensor.layout is torch.strided:
            raise TraceError(STRIDED_NESTED)
        if tensor.layout is not torch.strided:
            raise TraceError(
                f"A tensor of layout {tensor.layout} has no strides, so it cannot be described by a Spec. "
                "Pass its values and indices as dense tensors, or a wrapper tensor that holds them."
            )
        if tensor.is_conj() or tensor.is_neg():
            raise TraceError(
                "A tensor with a lazy conjugate or negative bit cannot be described by a Spec: the bit is not data. "
                "Pass tensor.resolve_conj().resolve_neg() instead."
            )
        return Spec.make(
            tuple(tensor.size()),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.dtype,
            device or tensor.device,
            tensor.layout,
        )

    @property
    def numel(self) -> Any:
        """Number of elements."""
        count: Any = 1
        for length in self.size:
            count *= length
        return count

    @property
    def nbytes(self) -> Any:
        """Bytes of `numel` packed elements."""
        return self.numel * self.dtype.itemsize

    @property
    def extent(self) -> Any:
        """Elements of storage that a tensor of this spec needs, its offset included."""
        if self.solver is None and self.numel == 0:
            return 0
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))

    @property
    def is_packed(self) -> bool:
        """True if its elements lie one after the other, in the order of its dims."""
        if self.solver is None:
            return self.stride == _torch.wrappers.contiguous_stride(self.size)
        steps = zip(self.size, self.stride, _torch.wrappers.contiguous_stride(self.size), strict=True)
        return all(type(n) is int and n == 1 or key_of(step) == key_of(packed) for n, step, packed in steps)

    @property
    def is_non_overlapping_and_dense(self) -> bool:
        """True if its elements fill a range of memory, each in a place of its own, in whatever order its dims are.

        Raises:
            SizesMustBeKnown: It depends on symbols.
        """
        try:
            return strides.is_non_overlapping_and_dense(self.size, self.stride)
        except strides.Unknown:
            raise SizesMustBeKnown from None

    @property
    def overlaps_itself(self) -> bool:
        """True if several elements are one place in memory, as in an expanded tensor, and in windows that overlap.

        Of symbols, each call is to have the same answer.

        Raises:
            SizesMustBeKnown: It depends on symbols.
        """
        if self.is_packed:
            return False
        if self.solver is None:
            return 0 not in self.size and _or_true(has_place_twice, self._terms())
        if self.is_expanded:
            return True
        dims = list(zip(self.size, self.stride, strict=True))
        try:
            dims.sort(key=lambda dim: _torch.symbolic.example_of(dim[1]))
        except TypeError:  # of sizes by data, only new tensors are made
            return False
        reach: Any = 0
        for n, step in dims:
            if not bool(step > reach) and not (type(n) is int and n == 1):
                raise SizesMustBeKnown
            reach = reach + (n - 1) * step
        return False

    @property
    def is_expanded(self) -> bool:
        """True if elements along a dim are one place in memory, as far as that is known of all sizes."""
        dims = zip(self.size, self.stride, strict=True)
        return any(type(step) is int and step == 0 and _torch.symbolic.statically_known_true(n > 1) for n, step in dims)

    def lies_apart(self, other: Spec) -> bool:
        """Returns whether a tensor has no place in memory in common with another one of the same storage.

        With symbols, returns whether that is known of all sizes.
        """
        if self.solver is not None or other.solver is not None:
            ends = [(s.offset * s.dtype.itemsize, s.extent * s.dtype.itemsize) for s in (self, other)]
            (first, last), (begins, end) = ends
            if _torch.symbolic.statically_known_true(last <= begins) or _torch.symbolic.statically_known_true(
                end <= first
            ):
                return True
            # Columns lie apart however many rows there are.
            longest = [s._of_any_length() for s in (self, other)]
            return None not in longest and longest[0].lies_apart(longest[1])
        if not self.numel or not other.numel:
            return True
        (one, first), (another, second) = self._bytes(), other._bytes()
        return not _or_true(has_common_place, one, first, another, second)

    def has_places_of(self, other: Spec) -> bool:
        """Returns whether all places of another tensor of the same storage are places of this one.

        Where sizes are symbols, each call is to have the same answer.

        Raises:
            SizesMustBeKnown: That is not to be had with symbols.
        """
        if self.solver is None and other.solver is None:
            if not other.numel:
                return True
            (own, first), (places, begins) = self._bytes(), other._bytes()
            return bool(self.numel) and covers(own, places, begins - first)
        if self.dtype is not other.dtype or not self.is_non_overlapping_and_dense:
            raise SizesMustBeKnown
        before = other.offset - self.offset
        return bool(before >= 0) and bool(before + other.extent - other.offset <= self.numel)

    def _of_any_length(self) -> Any:
        """Returns a spec that has all places of this one, whatever its sizes are; None if strides are symbols, too."""
        if not all(type(n) is int for n in (*self.stride, self.offset)):
            return None
        size = tuple(n if type(n) is int else _LONGEST for n in self.size)
        return Spec.make(size, self.stride, self.offset, self.dtype, self.device)

    def _terms(self, unit: int = 1) -> list[Term]:
        """Returns the strides in bytes, if a unit is one, each with the size less one."""
        return [(int(step) * unit, int(n) - 1) for n, step in zip(self.size, self.stride, strict=True) if n > 1]

    def _bytes(self) -> tuple[list[Term], int]:
        """Returns the steps in bytes, those within one element included, and where it begins."""
        width = self.dtype.itemsize
        return [*self._terms(width), (1, width - 1)], int(self.offset) * width

    def equals(self, other: Spec) -> bool:
        """Returns whether two specs are one, given what is known now: symbols may have proved equal since."""
        if self is other or self.solver is None and other.solver is None:
            return self is other
        parts = (map(key_of, (*s.size, None, *s.stride, s.offset, s.dtype, s.device)) for s in (self, other))
        return len(set(map(tuple, parts))) == 1

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Spec is immutable: make another one with Spec.make(...) instead of setting {name!r}.")

    def __repr__(self) -> str:
        parts = [str(list(self.size)), str(self.dtype).removeprefix("torch."), str(self.device)]
        if self.solver is None and self.stride != _torch.wrappers.contiguous_stride(self.size):
            parts.append(f"stride={self.stride}")
        if type(self.offset) is not int or self.offset:
            parts.append(f"offset={self.offset}")
        return f"Spec({', '.join(parts)})"

    def __reduce__(self) -> tuple[object, ...]:
        return Spec.make, (self.size, self.stride, self.offset, self.dtype, self.device, self.layout)

    def __copy__(self) -> Spec:
        return self

    def __deepcopy__(self, memo: object) -> Spec:
        return self


def _or_true(question: Callable[..., bool], *given: object) -> bool:
    """Returns the answer about places in memory, or True where it takes too long to find it."""
    try:
        return question(*given)
    except TooHard:
        return True


def _new(key: tuple[Any, ...], solver: object) -> Spec:
    spec: Spec = object.__new__(Spec)
    for name, value in zip(Spec.__slots__, (*key, solver), strict=False):
        object.__setattr__(spec, name, value)
    # C++ knows the device only where this build of torch can have it: see Note [Devices without hardware].
    size, stride, offset, dtype, device, layout = key
    native = native_device(device)
    head = (size, stride, offset, None, dtype)
    blank = head if native == _CPU else (*head, layout, native)
    if native != _CPU and device.type in keys_of_claims:  # which brings what is known of that device
        keys = keys_of_claims[device.type]() if native == _META else None
        blank = blank if keys is None else (*blank, False, False, None, False, False, keys)
    if solver is not None:  # else torch computes for each leaf how large its memory is
        options = (*blank, *(layout, native, False, False, None, False, False, None)[len(blank) - len(head) :])
        blank = (*options, _elements_in_memory(spec) * dtype.itemsize)
    object.__setattr__(spec, "_blank_args", blank)
    return spec


def _elements_in_memory(spec: Spec) -> Any:
    """Returns how many elements the memory of a new leaf has, the offset included."""
    if any(type(n) is int and n == 0 for n in spec.size):
        return 0
    step: Any = 1
    dims = [(n, stride) for n, stride in zip(spec.size, spec.stride, strict=True) if not (type(n) is int and n == 1)]
    with suppress(TypeError):  # data decides one: such a tensor is a new one
        dims.sort(key=lambda dim: -_torch.symbolic.example_of(dim[1]))
    for n, stride in reversed(dims):  # if they lie one in the other
        if not _torch.symbolic.is_same_expression(stride, step):
            return spec.extent
        step = step * n
    return spec.offset + step


def _symbolic(size: tuple[Number, ...], stride: tuple[Number, ...], offset: Number, *others: Any) -> Spec:
    """Returns the one spec with these numbers, among those of their solver: they go when it goes."""
    size, stride, offset = tuple(map(plain, size)), tuple(map(plain, stride)), plain(offset)
    solver = solver_in((*size, *stride, offset))
    if solver is None:
        return Spec.make(size, stride, offset, *others)
    cache: dict[Any, Spec] = cache_of(solver, "specs")
    key = (tuple(map(key_of, size)), tuple(map(key_of, stride)), key_of(offset), *others)
    if key not in cache:
        cache[key] = _new((size, stride, offset, *others), solver)
    return cache[key]


# Note [Devices without hardware]
# A tensor without data may claim any device, but autograd calls into the device's own runtime (streams, guards) and
# kills the process where the build has none. There the C++ tensor says `meta` and only Python says `cuda:0`.
def native_device(device: torch.device) -> torch.device:
    """Returns the device that the C++ side of a data-free tensor on `device` is given."""
    if device.type in ("cpu", "meta"):
        return device
    return device if device.type == _torch.cuda.accelerator_here() else _META


def indexed(device: str | torch.device) -> torch.device:
    """Returns a device as tensors name it, with its index.

    >>> indexed("cuda")
    device(type='cuda', index=0)
    """
    device = torch.device(device)
    index: int | None = device.index  # the stubs of torch have it that it is always there
    if index is not None or device.type in ("cpu", "meta"):
        return device
    here = native_device(device) == device
    return torch.device(device.type, torch.accelerator.current_device_index() if here else 0)


STRIDED_NESTED = (
    "A nested tensor of the layout torch.strided has no sizes that a graph could know. Instead: make one of the layout "
    "torch.jagged outside the compiled function, as in nested_tensor(tensors, layout=torch.jagged), and pass it."
)
_LONGEST = 1 << 48
"""No size of a tensor in memory is greater."""
_CPU = torch.device("cpu")
_META = torch.device("meta")
keys_of_claims: Registry[Callable[[], Any]] = Registry("claims of")
"""By the type of a device that the build does not have, what gives the dispatch keys of tensors that claim it."""
_interned: dict[tuple[object, ...], Spec] = {}
