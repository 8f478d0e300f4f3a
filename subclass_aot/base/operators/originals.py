"""Operators that write, of which this library has defined variants that do not: those write copies, and return them."""

from __future__ import annotations

from typing import NamedTuple

from subclass_aot.base import _torch


class Original(NamedTuple):
    """The operator that a variant stands for.

    Attributes:
        func: It.
        written: The arguments that it writes, by position and name; the variant returns a copy of each.
    """

    func: _torch.operators.Operator
    written: tuple[tuple[int, str], ...]


class _Originals(dict[object, Original]):
    def note(self, variant: object, func: _torch.operators.Operator, written: tuple[tuple[int, str], ...]) -> None:
        """Notes what a variant stands for."""
        self[variant] = Original(func, written)


ORIGINALS = _Originals()
"""By the variant. Only those that return nothing else, and are given nothing twice."""
