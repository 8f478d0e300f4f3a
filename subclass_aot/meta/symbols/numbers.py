"""Symbolic numbers: recognizes and compares them, and finds their solver."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.symbolic import Symbolic
from subclass_aot.base._torch.symbolic import is_symbolic as is_symbolic

Number = int | torch.SymInt
Bounds = tuple[int, int | None]


def plain(number: object) -> Any:
    """Returns a symbolic number that proved to be a certain one, as that one; everything else as it is."""
    if type(number) is not torch.SymInt:
        return number
    expression = _torch.symbolic.expression_of(number)
    return int(expression) if expression.is_Integer else number


def key_of(value: object) -> Any:
    """Returns a value as it stands in the key of a cache: numbers compare by expression."""
    return _torch.symbolic.expression_of(value) if is_symbolic(value) else value


def lasting_key_of(number: Symbolic) -> Any:
    """Returns a key of a symbolic number that stays the same in a trace when more is found out about symbols."""
    return _torch.symbolic.original_expression_of(number)


def solver_in(values: Iterable[object]) -> Any:
    """Returns the solver of the first symbolic number among `values`, or None."""
    return next((_torch.symbolic.solver_of(v) for v in values if is_symbolic(v)), None)


def cache_of(solver: object, what: str) -> dict[Any, Any]:
    """Returns a cache that lasts as long as a solver is used.

    Args:
        solver: The solver.
        what: A name for what is in it.
    """
    caches: dict[str, dict[Any, Any]] = vars(solver).setdefault(_CACHES, {})
    return caches.setdefault(what, {})


def forget(solver: object) -> None:
    """Drops the caches of a solver: they refer to the solver."""
    vars(solver).pop(_CACHES, None)
    _torch.symbolic.forget_answers(solver)


_CACHES = "subclass_aot_caches"


class SizesMustBeKnown(BaseException):
    """Raised in a trace that cannot go on with symbolic sizes: it can with known ones. No `except Exception` of the
    program catches it.

    Args:
        paths: The inputs whose sizes must be known; none for all of them.
    """

    def __init__(self, paths: Collection[str] = ()) -> None:
        super().__init__("sizes that are symbols have to be numbers here")
        self.paths = paths


class NoAnswer(SizesMustBeKnown):
    """Raised where the solver finds no answer within its budget. See Note [Steps of the solver].

    Args:
        places: Where the symbols are read that it was asked about, as `args[0].size(1)`.
    """

    def __init__(self, places: Collection[str]) -> None:
        super().__init__(list(dict.fromkeys(place.rpartition(".")[0] for place in places)))
        self.args = (f"sympy finds no end with an expression of {', '.join(places)}",)
        self.places = places
