"""Methods that symbolic numbers lack, or have otherwise than numbers: for arrays, comparisons, divisions by zero.

Note [Symbols where only numbers go]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A symbol that reaches code of C is an object of an unknown class. Most such code raises a `TypeError`; the trace begins
again, and the number stays a number. Some goes on, and has another result than with a number:

- numpy makes arrays of objects. With `__array__` and `__array_ufunc__` it gets the numbers.
- `==` with an `IntEnum`, a `Fraction` or a `Decimal` is False, since no class takes the other. It compares numbers.
- `round(n, -1)` leaves a whole symbol as it is, and loses the sign of zero. It rounds the number.
- The encoder of `json` asks its `default` for a text. Its form in Python raises an error, so that one is used.
- `random.Random(n)` begins with a hash, which of a number below zero is another one. It gets the number.
- `r == r` is true to the solver. Of NaN it is false, so the program asks for that.
- `float(r)` has the solver assume the value, which has no NaN, no infinite numbers and no sign of zero. These are
  asked for, too.
"""

from __future__ import annotations

import json.encoder
import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.subjects.numbers.text import is_of_program, plain

_CLASSES: tuple[Any, ...] = (torch.SymInt, torch.SymFloat)
_OF_ARRAYS = ("__array__", "__array_ufunc__")
_COMPARING = ("__eq__", "__ne__")
_OF_NAN = {"__eq__": False, "__ne__": True, "__lt__": False, "__gt__": False, "__le__": False, "__ge__": False}
"""What comparisons of NaN with itself give."""

_PLACES: list[tuple[Any, str]] = [
    *((cls, name) for cls in _CLASSES for name in (*_OF_ARRAYS, *_COMPARING, "__round__")),
    *((torch.SymFloat, name) for name in (*_OF_NAN, "__bool__", "__float__", "__int__")),
    (random.Random, "seed"),
    (json.encoder, "c_make_encoder"),
]


@contextmanager
def methods_are_those_of_numbers(reads: bool) -> Iterator[None]:
    """Runs the block so that symbolic numbers do as numbers do; see Note [Symbols where only numbers go].

    Args:
        reads: Whether numbers that data decides can be compared: there is a call that is traced.
    """
    with PutBack(attributes_put_back(_PLACES)):
        for cls in _CLASSES:
            cls.__array__ = _array
            cls.__array_ufunc__ = _array_ufunc
            cls.__round__ = _rounded(cls.__round__)
            for name in _COMPARING:
                setattr(cls, name, _compared(name, getattr(cls, name)))
        if reads:
            for name in _OF_NAN:
                setattr(torch.SymFloat, name, _with_nan(name, getattr(torch.SymFloat, name)))
            setattr(torch.SymFloat, "__float__", _read(torch.SymFloat.__float__))  # noqa: B010  # torch has none to see
            setattr(torch.SymFloat, "__int__", _whole(torch.SymFloat.__int__))  # noqa: B010
        torch.SymFloat.__bool__ = _is_not_zero  # type: ignore[method-assign]
        random.Random.seed = _seeded(random.Random.seed)  # type: ignore[method-assign]
        setattr(json.encoder, "c_make_encoder", None)  # noqa: B010  # no public name
        yield


def _array(number: object, dtype: object = None, copy: bool | None = None) -> Any:
    """Makes an array of the value."""
    import numpy as np

    return np.asarray(plain(number), dtype)  # type: ignore[call-overload]  # whatever numpy gives


def _array_ufunc(number: object, ufunc: object, method: str, *inputs: object, **options: object) -> Any:
    """Runs a function of numpy with the values of symbols."""
    return getattr(ufunc, method)(*map(plain, inputs), **{name: plain(value) for name, value in options.items()})


def _compared(name: str, torchs: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a comparison that also takes other classes of numbers, for which the symbol is its value."""

    def method(number: object, other: object) -> Any:
        result = torchs(number, other)
        if result is not NotImplemented or not _is_a_number(other) or _torch.wrappers.is_nested_int(number):
            return result
        return getattr(other, name)(plain(number))

    return method


_NO_NUMBERS = (torch.Tensor, str, bytes, list, tuple, dict, set, frozenset, type, type(None))


def _is_a_number(value: object) -> bool:
    """Returns whether a class may compare its values with numbers; arrays do so by `__array_ufunc__`."""
    compares = getattr(type(value), "__eq__", None) is not object.__eq__
    return compares and not isinstance(value, _NO_NUMBERS) and not hasattr(type(value), _OF_ARRAYS[1])


def _with_nan(name: str, torchs: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a comparison that does not take each number for equal to itself."""

    def method(number: Any, other: Any) -> Any:
        is_itself = type(other) is torch.SymFloat and _torch.symbolic.are_one(number, other)
        if is_itself and is_of_program(sys._getframe(1)) and _is_nan(number):
            return _OF_NAN[name]
        return torchs(number, other)

    return method


def _is_nan(number: torch.SymFloat) -> bool:
    """Returns whether a number is NaN, which the trace then assumes. Sizes make none."""
    return not _torch.symbolic.has_example(number) and bool(_tensor_of(number).isnan())


def _read(torchs: Callable[[Any], float]) -> Callable[[Any], float]:
    """Makes `__float__` of a number that data decides."""

    def method(number: Any) -> float:
        value = None if _torch.symbolic.has_example(number) else _torch.symbolic.value_of(number)
        if value is None or math.isfinite(value) and value:
            return float(torchs(number))
        tensor = _tensor_of(number)
        if not value:  # the trace assumes what it asks of tensors
            bool(tensor.signbit())
        bool(tensor.isnan() if math.isnan(value) else tensor == value)
        return float(value)

    return method


def _whole(torchs: Callable[[Any], int]) -> Callable[[Any], int]:
    """Makes `__int__`, which NaN and infinite numbers do not have."""

    def method(number: Any) -> int:
        value = None if _torch.symbolic.has_example(number) else _torch.symbolic.value_of(number)
        if value is None or math.isfinite(value) and value:
            return torchs(number)
        if not value:  # which the solver would take for zero without a sign
            bool(_tensor_of(number).trunc() == 0)
        return 0 if not value else int(float(number))

    return method


def _tensor_of(number: torch.SymFloat) -> torch.Tensor:
    return torch.scalar_tensor(number, dtype=torch.float64)  # type: ignore[arg-type]


def _is_not_zero(number: object) -> bool:
    return bool(number != 0)


def _seeded(pythons: Callable[..., None]) -> Callable[..., None]:
    def seed(generator: random.Random, value: object = None, *more: object, **options: object) -> None:
        pythons(generator, plain(value), *more, **options)

    return seed


def _rounded(torchs: Callable[..., Any]) -> Callable[..., Any]:
    def method(number: object, digits: int | None = None) -> Any:
        return torchs(number, digits) if digits is None or digits >= 0 else round(plain(number), digits)

    return method
