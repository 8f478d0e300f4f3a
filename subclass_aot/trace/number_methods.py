"""Methods that symbolic numbers lack, or have otherwise than numbers: for arrays, comparisons, divisions by zero.

Note [Symbols where only numbers go]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A symbol that reaches code of C is an object of an unknown class. Most such code raises a `TypeError`; the trace begins
again, and the number stays a number. Some goes on, and has another result than with a number:

- numpy makes arrays of objects. With `__array__` and `__array_ufunc__` it gets the numbers.
- `==` with an `IntEnum`, a `Fraction` or a `Decimal` is False, since no class takes the other. It compares numbers.
- `round(n, -1)` leaves a symbol as it is. It rounds the number.
- The encoder of `json` asks its `default` for a text. Its form in Python raises an error, so that one is used.

A division by a symbol assumes that this is not zero: the generated code would raise the error after the block of the
program that catches it. A power assumes that its base is positive: elsewhere the result may be complex, or an error,
and torch takes none but positive bases.
"""

from __future__ import annotations

import json.encoder
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.put_back import PutBack, attributes_put_back
from subclass_aot.trace.text import is_of_program

_PLAIN: dict[Any, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "divmod": divmod,
    "pow": operator.pow,
}  # fmt: skip
_BINARY = [f"__{side}{name}__" for name in _OPERATORS for side in ("", "r")]
_OF_ARRAYS = ("__array__", "__array_ufunc__")
_COMPARING = ("__eq__", "__ne__")
_ROUNDING = "__round__"
_PLACES: list[tuple[Any, str]] = [
    *((cls, name) for cls in _PLAIN for name in (*_OF_ARRAYS, *_COMPARING, *_BINARY)),
    (torch.SymInt, _ROUNDING),
    (json.encoder, "c_make_encoder"),
]


@contextmanager
def methods_are_those_of_numbers(reads: bool) -> Iterator[None]:
    """Runs the block so that symbolic numbers do as numbers do; see Note [Symbols where only numbers go].

    Args:
        reads: Whether numbers that data decides can be compared: there is a call that is traced.
    """
    with PutBack(attributes_put_back(_PLACES)):
        for cls in _PLAIN:
            cls.__array__ = _array
            cls.__array_ufunc__ = _array_ufunc
            for name in _COMPARING:
                setattr(cls, name, _compared(name, getattr(cls, name)))
            for name in _BINARY:
                if hasattr(cls, name):
                    setattr(cls, name, _with_domain(name, getattr(cls, name), reads))
        setattr(torch.SymInt, _ROUNDING, _rounded)
        setattr(json.encoder, "c_make_encoder", None)  # noqa: B010  # no public name
        yield


def _array(number: object, dtype: object = None, copy: bool | None = None) -> Any:
    """Makes an array of the value."""
    import numpy as np

    return np.asarray(_plain(number), dtype)  # type: ignore[call-overload]  # whatever numpy gives


def _array_ufunc(number: object, ufunc: object, method: str, *inputs: object, **options: object) -> Any:
    """Runs a function of numpy with the values of symbols."""
    return getattr(ufunc, method)(*map(_plain, inputs), **{name: _plain(value) for name, value in options.items()})


def _plain(value: object) -> Any:
    """Returns the value of a symbol, and anything else as it is."""
    return _PLAIN.get(type(value), _itself)(value)


def _itself(value: object) -> object:
    return value


def _compared(name: str, torchs: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a comparison that also takes other classes of numbers, for which the symbol is its value."""

    def method(number: object, other: object) -> Any:
        result = torchs(number, other)
        if result is not NotImplemented or not _is_a_number(other) or _torch.wrappers.is_nested_int(number):
            return result
        return getattr(other, name)(_plain(number))

    return method


_NO_NUMBERS = (torch.Tensor, str, bytes, list, tuple, dict, set, frozenset, type, type(None))


def _is_a_number(value: object) -> bool:
    """Returns whether a class may compare its values with numbers; arrays do so by `__array_ufunc__`."""
    compares = getattr(type(value), "__eq__", None) is not object.__eq__
    return compares and not isinstance(value, _NO_NUMBERS) and not hasattr(type(value), _OF_ARRAYS[1])


def _with_domain(name: str, torchs: Callable[..., Any], reads: bool) -> Callable[..., Any]:
    """Makes an operator that assumes numbers of which it has a value, or else does as Python does with these."""
    is_reflected = name.startswith("__r")
    operator_of = _OPERATORS[name.strip("_").removeprefix("r" if is_reflected else "")]

    def method(number: object, other: object, *more: object) -> Any:
        first, second = (other, number) if is_reflected else (number, other)
        if is_of_program(sys._getframe(1)) and not more and not _has_value(operator_of, first, second, reads):
            return operator_of(_plain(first), _plain(second))
        return torchs(number, other, *more)

    return method


def _has_value(operator_of: Callable[[Any, Any], Any], first: Any, second: Any, reads: bool) -> bool:
    """Returns whether an operator has a real value of two numbers, which the trace then assumes."""
    tested = first if operator_of is operator.pow else second
    if type(tested) not in _PLAIN or _torch.wrappers.is_nested_int(tested):
        return True
    if not reads and not _torch.symbolic.has_example(tested):
        return True
    if operator_of is not operator.pow:
        return bool(tested != 0)
    is_whole = type(first) is torch.SymInt and type(second) in (int, torch.SymInt)
    return is_whole and bool(second >= 0) or bool(first > 0)


def _rounded(number: Any, digits: Any = None) -> Any:
    """Rounds a whole number."""
    return number if digits is None or digits >= 0 else round(int(number), digits)
