"""Symbolic sizes are read where they first occur, and compared where they occur again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.guards.size_guards import SizeGuards
from subclass_aot.meta.symbols import Symbols, plain


def guard(assume: Callable[[Any], object] = lambda n: None) -> Callable[..., Any]:
    """Says whether `x` has `n` rows, and `y` three rows that are `2 * n` apart."""
    source = GuardedSource("guard", "x, y", "", (None, "None"))
    symbols, guards = Symbols(), SizeGuards()
    n: Any = symbols.size(6, "x.size(0)")
    assume(n)
    for tensor, kind, number in (("x", "size", n), ("y", "size", 3), ("y", "stride", n * 2)):
        guards.read(source, tensor, kind, 0, symbols.text(plain(number)))  # type: ignore[arg-type]
    known = {read.text for read in guards.reads if read.text.isidentifier()}
    guards.write(source, dict(symbols.assumptions(known)))
    source.line("return True")
    return source.build()


def fits(guard: Callable[..., Any], n: int, rows: int = 3, stride: int | None = None) -> bool:
    y = torch.empty_strided((rows, 1), (2 * n if stride is None else stride, 1))
    return guard(torch.empty(n), y) is True


def test_expressions_of_symbols_are_compared() -> None:
    checked = guard()
    assert fits(checked, 6) and fits(checked, 9) and not fits(checked, 6, stride=6)


def test_a_number_that_is_known_is_compared() -> None:
    assert not fits(guard(), 6, rows=4)


def test_what_was_assumed_is_a_condition() -> None:
    checked = guard(lambda n: bool(n > 4))
    assert fits(checked, 5) and not fits(checked, 4)


def test_a_size_that_became_known_is_compared() -> None:
    checked = guard(lambda n: bool(n == 6))
    assert fits(checked, 6) and not fits(checked, 5)
