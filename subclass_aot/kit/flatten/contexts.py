"""Contexts as metas hold them: without symbolic numbers, for which a context has no slots.

Note [Sizes in contexts]
~~~~~~~~~~~~~~~~~~~~~~~~
A context may repeat what its wrapper is from outside, as that of a `DTensor` has the size and strides of the whole.
Where those are symbols, the context of a meta says which of them stands there (`Repeated`), and not what it is: the
call has. Any other symbolic number is what it is in this call, and its solver has a guard for that.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from subclass_aot.base._torch.wrappers import is_nested_int, same_number

_PLAIN: dict[type, Callable[[Any], object]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}

_PATH = ".__tensor_flatten__()[1]"
"""How the path of a wrapper goes on to its context."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Stands in a context where that repeats the size or a stride of its wrapper.

    Attributes:
        kind: Which of the two.
        dim: The dimension; None where all of them stand there.
    """

    kind: Literal["size", "stride"]
    dim: int | None

    def __str__(self) -> str:
        return f"{self.kind}({'' if self.dim is None else self.dim})"

    def of(self, size: Sequence[Any], stride: Sequence[Any]) -> Any:
        """Returns what it is in a wrapper of this size and these strides."""
        if self.dim is None:
            return torch.Size(size) if self.kind == "size" else tuple(stride)
        return (size if self.kind == "size" else stride)[self.dim]


def known(value: Any) -> Any:
    """Replaces symbolic numbers by what they are in this call: their solver has a guard for each then.

    Looks into tuples, lists, dicts, dataclasses, and what these or the value have for attributes. What holds none is
    given back; else, a copy.
    """
    return _mapped(value, lambda x, _: _number_of_call(x))


def patterned(context: Any, size: Sequence[Any], stride: Sequence[Any]) -> Any:
    """Replaces symbolic numbers of a context by those of the wrapper that they repeat, and others as `known` does.

    Args:
        context: The context.
        size: The wrapper's size.
        stride: The wrapper's stride.
    """
    outer: list[tuple[torch.SymInt, Repeated]] = [
        (n, Repeated(kind, dim))  # type: ignore[arg-type]
        for kind, numbers in (("size", size), ("stride", stride))
        for dim, n in enumerate(numbers)
        if isinstance(n, torch.SymInt) and not is_nested_int(n)
    ]
    if not outer:
        return known(context)

    def replaced(x: object, path: str) -> Any:
        if isinstance(x, torch.Size):  # which takes numbers only
            whole = len(x) == len(size) and all(map(same_number, x, size))
            return Repeated("size", None) if whole else torch.Size(map(_number_of_call, x))
        if (
            type(x) is tuple
            and any(type(n) is torch.SymInt for n in x)  # else it is equal by chance
            and len(x) == len(stride)
            and all(map(same_number, x, stride))
        ):
            return Repeated("stride", None)
        if type(x) is not torch.SymInt:
            return _number_of_call(x)
        return next((place for number, place in outer if same_number(x, number)), None) or _number_of_call(x)

    return _mapped(context, replaced)


def filled(context: Any, size: Sequence[Any], stride: Sequence[Any]) -> Any:
    """Puts the size and strides of a wrapper into the context of a meta.

    Args:
        context: The context, as `patterned` gives it.
        size: The wrapper's size.
        stride: The wrapper's stride.

    >>> filled(("a", (Repeated("size", 1), 3)), (2, 5), (5, 1))
    ('a', (5, 3))
    """
    return _mapped(context, lambda x, _: x.of(size, stride) if type(x) is Repeated else x)


def resized(context: Any, size: Sequence[Any], new: Sequence[Any]) -> Any:
    """Replaces the size of a wrapper in its context by another one.

    A `torch.Size` that equals that of the wrapper is taken for it. Guards compare both, so a call where they differ is
    another one.

    Args:
        context: The context.
        size: The wrapper's size.
        new: What stands there instead.
    """

    def replaced(x: object, path: str) -> Any:
        return torch.Size(new) if isinstance(x, torch.Size) and len(x) and x == size else x

    return _mapped(context, replaced)


def restrided(context: Any, stride: Sequence[Any], new: Sequence[Any]) -> Any:
    """Replaces the strides of a wrapper in its context by others.

    Args:
        context: The context.
        stride: The wrapper's strides.
        new: What stands there instead.
    """

    def replaced(x: object, path: str) -> Any:
        are = type(x) is tuple and len(x) > 0 and x == stride and not any(type(n) is bool for n in x)
        return tuple(new) if are else x

    return _mapped(context, replaced)


def repeated(context: Any, path: str = "") -> Iterator[tuple[str, Repeated]]:
    """Yields where the context of a meta repeats what its wrapper is.

    Args:
        context: The context, as `patterned` gives it.
        path: What leads to the wrapper.
    """
    found: list[tuple[str, Repeated]] = []

    def note(x: object, where: str) -> Any:
        if type(x) is Repeated:
            found.append((where, x))
        return x

    _mapped(context, note, path + _PATH)
    yield from found


def masked(context: Any, path: str, places: Mapping[str, Any]) -> Any:
    """Replaces what stands at some places of a context.

    Args:
        context: The context of a wrapper.
        path: What leads to the wrapper.
        places: By their paths, as `repeated` gives them, what is put there.
    """
    return _mapped(context, lambda x, where: places.get(where, x), path + _PATH) if places else context


def _number_of_call(x: object) -> Any:
    return _PLAIN[type(x)](x) if type(x) in _PLAIN and not is_nested_int(x) else x


def _mapped(value: Any, put: Callable[[Any, str], Any], path: str = "") -> Any:
    """Replaces parts of a value; gives back what stays as it is, else a copy.

    Looks into tuples, lists, dicts, dataclasses, and what these or the value have for attributes.

    Args:
        value: The value.
        put: Gives what stands in the place of a part, or the part itself, whose own parts follow then.
        path: What leads to the value.
    """
    new = put(value, path)
    if new is not value:
        return new
    if isinstance(value, tuple | list):
        parts = [_mapped(x, put, f"{path}[{i}]") for i, x in enumerate(value)]
        if all(map(operator.is_, parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        items = {key: _mapped(x, put, f"{path}[{key!r}]") for key, x in value.items()}
        return value if all(items[key] is x for key, x in value.items()) else items
    if isinstance(value, type) or callable(value):
        return value
    is_dataclass = dataclasses.is_dataclass(value)
    held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} if is_dataclass else _numbers_of(value)
    changed = {name: new for name, x in held.items() if (new := _mapped(x, put, f"{path}.{name}")) is not x}
    if not changed:
        return value
    made = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(made, name, new)  # also where it is frozen
    return made


def _numbers_of(value: object) -> dict[str, Any]:
    """Returns the attributes of an object that are symbolic numbers, or may hold some themselves."""
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool, Repeated, tuple, list, dict)
    return {name: x for name, x in getattr(value, "__dict__", {}).items() if isinstance(x, kinds)}
