"""Divisions and powers of symbolic numbers, where they have no value, or not the one that torch computes.

Note [Where an operator has a value]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A division by a symbol assumes that this is not zero: the generated code would raise the error after the block of the
program that catches it. A power assumes that its base is positive. Elsewhere the result may be complex, or an error.

Torch has `math.floor(a / b)` for `a // b`, which of floating-point numbers is another one: `1.0 // 0.1` is 9. So these
take the numbers, but where the division is exact.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.subjects.numbers.text import is_of_program, plain

_SYMBOLS: tuple[Any, ...] = (torch.SymInt, torch.SymFloat)
_WHOLE = {int, bool, torch.SymInt}
_NUMBERS = {*_WHOLE, float, torch.SymFloat}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "divmod": divmod,
    "pow": operator.pow,
}  # fmt: skip
_PLACES = [(cls, f"__{side}{name}__") for cls in _SYMBOLS for name in _OPERATORS for side in ("", "r")]


@contextmanager
def operators_have_values(reads: bool) -> Iterator[None]:
    """Runs the block so that the program's divisions and powers are those of Python; see Note [Where an operator has a
    value].

    Args:
        reads: Whether numbers that data decides can be compared: there is a call that is traced.
    """
    with PutBack(attributes_put_back(_PLACES)):
        for cls, name in _PLACES:
            setattr(cls, name, _of_program(name, getattr(cls, name, _none), reads))
        yield


def _none(number: object, other: object) -> object:
    """Is an operator that torch does not have, as `divmod` of floats."""
    return NotImplemented


def _of_program(name: str, torchs: Callable[..., Any], reads: bool) -> Callable[..., Any]:
    is_reflected = name.startswith("__r")
    function = _OPERATORS[name.strip("_").removeprefix("r" if is_reflected else "")]

    def method(number: Any, other: Any, *more: object) -> Any:
        first, second = (other, number) if is_reflected else (number, other)
        kinds = {type(first), type(second)}
        known = kinds <= _NUMBERS and not more and is_of_program(sys._getframe(1)) and _are_known(first, second, reads)
        if not known:
            return torchs(number, other, *more)
        if not _has_value(function, first, second):
            return function(plain(first), plain(second))
        if function is operator.pow and type(first) is torch.SymFloat:
            return _torch.exact_floats.power(first, second)
        return torchs(number, other)

    return method


def _are_known(first: object, second: object, reads: bool) -> bool:
    """Returns whether something may be assumed of two numbers."""
    symbols = [n for n in (first, second) if type(n) in _SYMBOLS]
    nested = any(_torch.wrappers.is_nested_int(n) for n in symbols)
    return not nested and (reads or all(map(_torch.symbolic.has_example, symbols)))


def _has_value(function: Callable[[Any, Any], Any], first: float, second: float) -> bool:
    """Returns whether torch computes what Python does, which the trace then assumes."""
    are_whole = {type(first), type(second)} <= _WHOLE
    if function is operator.pow:
        return are_whole and bool(second >= 0) or bool(first > 0)
    if are_whole or function is operator.truediv:
        return bool(second != 0)
    is_power_of_two = type(second) in (int, float) and second > 0 and math.frexp(second)[0] == 0.5
    return is_power_of_two and function is not divmod and _torch.symbolic.has_example(first)
