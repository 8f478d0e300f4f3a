"""Nodes, which a walk notes for each value that it meets: one of a few kinds.

Note [Attributes of values]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
A user's class may derive from `tuple`, `int`, `float`, `str` and the like, and its objects have attributes then. Such
an object cannot change but for these, so it is a `TupleAt` of what it is, the elements or the number, and of its
`__dict__`. That is an object of the walk, like any dict. A tuple that is rebuilt gets the very dict of the one that
it stands for, so what is put on either is on both.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base.weak import is_weak
from subclass_aot.engine.objects.comparisons import may_change
from subclass_aot.engine.tables import ATOMS, has_vars

METHODS_IN_C = frozenset({types.BuiltinMethodType, types.MethodWrapperType})
"""Classes of methods of objects of C++: `steps.__next__`, `generator.send`, `table.get`."""


@dataclass(frozen=True, slots=True)
class TensorAt:
    """A tensor, by its number among all that were found."""

    number: int


@dataclass(frozen=True, slots=True)
class NumberAt:
    """A number that changes from call to call, by a tensor that stands for it. See `tensor_of`.

    Attributes:
        number: The number of the tensor.
        cls: Whether it is an `int` or a `float`.
        is_negative: Whether it is a whole one below zero: minus a size.
    """

    number: int
    cls: type = int
    is_negative: bool = False

    def of(self, tensor: torch.Tensor) -> Any:
        """Returns the number for which a tensor stands; a symbol for a traced one."""
        if self.cls is float:
            return tensor.item()
        return -tensor.size(0) if self.is_negative else tensor.size(0)

    @property
    def values(self) -> range:
        """Whole numbers that it may be."""
        return range(-SIZES[-1], -SIZES[0] + 1) if self.is_negative else SIZES


@dataclass(frozen=True, slots=True)
class ObjectAt:
    """An object of the walk, by its position."""

    position: int


@dataclass(frozen=True, slots=True, eq=False)
class TupleAt:
    """A tuple of any class by what it holds, or a method by its object and its function, or its name.

    So is a number or a text that has attributes. See Note [Attributes of values]. It cannot change, and is rebuilt
    where something inside does.
    """

    value: Any
    parts: tuple[Node, ...]

    @property
    def cls(self) -> type:
        """Its class."""
        return type(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class WeakAt:
    """A weak reference, by what it leads to. It is another one where something else stands for that."""

    value: Any
    target: Node


@dataclass(frozen=True, slots=True, eq=False)
class ValueAt:
    """A Python value: a constant of the signature. `stand_in` if the function sees another in its place."""

    value: Any
    stand_in: Any = None


Node = TensorAt | NumberAt | ObjectAt | TupleAt | WeakAt | ValueAt


def is_replaced(node: Node) -> bool:
    """Returns whether a traced function sees something else than what stands there."""
    match node:
        case TupleAt():
            return any(map(is_replaced, node.parts))
        case WeakAt():
            return is_replaced(node.target)
        case TensorAt() | NumberAt():
            return True
        case ValueAt():
            return node.stand_in is not None
        case ObjectAt():
            return False


def is_steady(node: Node) -> bool:
    """Returns whether what stands there is unchanged as long as it is the same object, but for what objects hold."""
    match node:
        case TupleAt():
            return all(map(is_steady, node.parts))
        case ValueAt():
            plain = type(node.value) in ATOMS
            return plain or node.stand_in is None and not is_weak(node.value) and not may_change(node.value)
        case TensorAt() | NumberAt() | WeakAt():
            return False
        case ObjectAt():
            return True


def sized(number: int) -> torch.Tensor:
    """Makes a tensor that brings a number into a graph: its first size, which may be a symbol like any other."""
    return torch.empty(number, 0)  # it takes no memory, however large the number


SIZES = range(2, 1 << 62)
"""Whole numbers that may be symbols: zero and one are compiled on their own, as sizes are, and larger ones are none.

So may these numbers below zero be."""


def tensor_of(number: float) -> torch.Tensor:
    """Makes a tensor that brings a number into a graph: as its size, without the sign, or as its value."""
    return sized(abs(number)) if type(number) is int else torch.scalar_tensor(number, dtype=torch.float64)


def with_other_ids(value: Any, ids: Mapping[int, int]) -> Any:
    """Returns a Python value in which the ids of tensors are those of the tensors that take their places.

    Args:
        value: A constant; only numbers, and those in tuples, may be ids.
        ids: The new ids by the old ones.
    """
    if type(value) is int:
        return ids.get(value, value)
    if type(value) is tuple:
        parts = [with_other_ids(part, ids) for part in value]
        return value if all(x is y for x, y in zip(parts, value, strict=True)) else tuple(parts)
    return value


_VALUES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__, float: float.__float__, complex: complex.__complex__, str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}  # fmt: skip


def value_of(value: object) -> Any:
    """Returns a number or a text without attributes, of Python's own class; what its class defines is not called."""
    return next(plain(value) for base, plain in _VALUES.items() if isinstance(value, base))


def steps_of(cls: type, count: int) -> list[str]:
    """Returns how to get from what a `TupleAt` stands for to each of its parts."""
    if cls is types.MethodType:
        return [".__self__", ".__func__"]
    if cls in METHODS_IN_C:
        return [".__self__", ".__name__"]
    if not has_vars(cls):
        return [f"[{i}]" for i in range(count)]
    return [*([f"[{i}]" for i in range(count - 1)] if issubclass(cls, tuple) else [""]), ".__dict__"]


def _with_vars(cls: type, *parts: object) -> Any:
    """Makes a value with attributes, of what it is and of its `__dict__`, without the constructor of its class."""
    base: Any = next(base for base in (tuple, *_VALUES) if issubclass(cls, base))
    made = base.__new__(cls, parts[:-1] if base is tuple else parts[0])
    object.__setattr__(made, "__dict__", parts[-1])
    return made


def make_tuple(cls: type, parts: Iterable[Any]) -> Any:
    """Makes what a `TupleAt` stands for, from its parts."""
    if cls is tuple:
        return tuple(parts)
    if has_vars(cls):
        return _with_vars(cls, *parts)
    if cls is types.MethodType:
        owner, function = parts  # as a walk notes them; the constructor has them the other way round
        return types.MethodType(function, owner)
    if cls in METHODS_IN_C:
        return getattr(*parts)
    try:
        return tuple.__new__(cls, parts)
    except TypeError:  # what C functions return, such as the pair of values and indices
        return cls(parts)
