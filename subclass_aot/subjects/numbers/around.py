"""What a trace with symbols runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from subclass_aot.base import _torch
from subclass_aot.engine.trace import numbers
from subclass_aot.subjects.numbers.calls import calls_give_symbols, functions_become_known, were_met
from subclass_aot.subjects.numbers.classes import classes_are_those_of_numbers
from subclass_aot.subjects.numbers.domains import operators_have_values
from subclass_aot.subjects.numbers.functions import functions_take_symbols
from subclass_aot.subjects.numbers.methods import methods_are_those_of_numbers
from subclass_aot.subjects.numbers.text import Hashes, numbers_are_written_out


@numbers.attempt.put
@contextmanager
def around_attempt(hashes_by_value: bool) -> Iterator[Hashes]:
    """Runs one attempt of a trace.

    Args:
        hashes_by_value: Whether symbols have the hashes of their values.
    """
    hashes = Hashes(hashes_by_value)
    with hashes.used(), functions_become_known():
        yield hashes


@numbers.program.put
@contextmanager
def around_program(reads: bool) -> Iterator[None]:
    """Runs the block so that functions of Python's and classes of numbers take symbolic numbers.

    Args:
        reads: Whether there is a call whose numbers can be read.
    """
    with (
        numbers_are_written_out(),
        functions_take_symbols(),
        _torch.exact_floats.sums_and_products_are_exact(),
        _torch.symbol_nodes.results_of_numbers_kept(),
        methods_are_those_of_numbers(reads),
        operators_have_values(reads),
        classes_are_those_of_numbers(),
        calls_give_symbols(),
    ):
        yield


numbers.were_met.put(were_met)
