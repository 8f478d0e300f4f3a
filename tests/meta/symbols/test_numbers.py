"""Symbolic numbers: telling them, and comparing them by expression."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.meta.symbols import Symbols, is_symbolic, key_of, lasting_key_of, plain
from subclass_aot.meta.symbols.numbers import SizesMustBeKnown, solver_in


@pytest.mark.parametrize("value", [3, True, 2.0, "n", None, torch.ones(2), torch.Size([2])])
def test_what_is_no_symbol_stays_as_it_is(value: object) -> None:
    assert not is_symbolic(value) and plain(value) is value and key_of(value) is value


def test_numbers_of_all_kinds() -> None:
    n: Any = Symbols().size(8, "x.size(0)")
    assert all(map(is_symbolic, (n, n + 1, n / 2, n > 2, torch.sym_float(n))))


def test_a_ragged_size_is_no_number() -> None:
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).shape[1]
    assert type(ragged) is torch.SymInt and not is_symbolic(ragged)


def test_numbers_are_compared_by_expression() -> None:
    symbols = Symbols()
    n: Any = symbols.size(8, "x.size(0)")
    m: Any = symbols.size(8, "y.size(0)")
    assert key_of(n + n) == key_of(2 * n) != key_of(n) != key_of(m)
    assert lasting_key_of(n + n) == lasting_key_of(2 * n) != lasting_key_of(m)


def test_a_number_that_became_known() -> None:
    n: Any = Symbols().size(8, "x.size(0)")
    double, before, lasting = n * 2, key_of(n), lasting_key_of(n)
    assert plain(n) is n and plain(double) is double
    assert n == 8  # an assumption
    assert (plain(n), plain(double)) == (8, 16) and type(plain(n)) is int
    assert key_of(n) == 8 != before and lasting_key_of(n) == lasting


def test_the_solver_of_the_first_symbol() -> None:
    one, other = Symbols(), Symbols()
    n, m = one.size(8, "x.size(0)"), other.size(8, "y.size(0)")
    assert solver_in([3, n, m]) is one.env and solver_in(iter([m, n])) is other.env
    assert solver_in([3, "n"]) is None and solver_in([]) is None


def test_whose_sizes_must_be_known() -> None:
    assert SizesMustBeKnown(["args[0]"]).paths == ["args[0]"] and not SizesMustBeKnown().paths
