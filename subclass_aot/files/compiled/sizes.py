"""The symbols of a signature as a record, and back: a fresh solver assumes all that the one of the trace assumed.

Nothing of a file gets into generated code as text. Expressions are lists of a closed set of words, from which sympy
makes them again, and the guard prints those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from subclass_aot.base import _torch
from subclass_aot.base.refused import Refused, at
from subclass_aot.meta.symbols import Symbols

OTHERWISE = "its symbolic sizes cannot be told to another solver: {what}. Compile with dynamic=False"
NOT_SO = "{written!r:.80} is assumed, and is not so in the example"


class SavedSize(NamedTuple):
    """A symbol.

    Attributes:
        where: Where the call has it, such as `args[0].size(1)`.
        hint: The size of the example.
        least: The least value that fits; None where there is none.
        most: The greatest value that fits.
    """

    where: str
    hint: int
    least: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class SavedSymbols:
    """The symbols of a signature.

    Attributes:
        sizes: The symbols.
        assumed: What was assumed of them, in order, as lists of words.
    """

    sizes: tuple[SavedSize, ...]
    assumed: tuple[Any, ...]


def saved_symbols(symbols: Symbols) -> SavedSymbols:
    """Returns the symbols of a signature as a record.

    Raises:
        Refused: Another solver does not come to the same, or there is what a record cannot have.
    """
    names, ranges = symbols.names, _torch.symbolic.value_ranges(symbols.env)
    known = _torch.expressions.sizes_of(symbols.env, names)
    sizes = tuple(SavedSize(known[name][1], known[name][0], *ranges[symbol]) for symbol, name in names.items())
    assumed = tuple(words_of(guard, symbols) for guard in _torch.expressions.guards_of(symbols.env))
    saved = SavedSymbols(sizes, assumed)
    with at("again"):
        again = symbols_of(saved)
    mine, other = ({text for text, _ in each.assumptions()} for each in (symbols, again))
    if mine != other:
        raise Refused(OTHERWISE.format(what="; ".join(sorted(mine ^ other)[:3])))
    return saved


def symbols_of(saved: SavedSymbols) -> Symbols:
    """Returns the inverse of `saved_symbols`, with a solver of its own.

    Raises:
        Refused: It does not fit together.
    """
    symbols = Symbols()
    for size in saved.sizes:
        symbols.size(size.hint, size.where)
    for written in saved.assumed:
        if not symbols.tell(expression_of(written, symbols)):
            raise Refused(NOT_SO.format(written=written))
    for size, symbol in zip(saved.sizes, symbols.names, strict=True):
        with _named():
            _torch.expressions.limit(symbols.env, symbol, size.least, size.most)
    return symbols


def words_of(expression: Any, symbols: Symbols) -> Any:
    """Returns an expression over symbols as a file has it.

    Raises:
        Refused: It has a number that depends on data, or a function that files do not have.
    """
    with _named():
        return _torch.expressions.as_words(expression, symbols.names)


def expression_of(written: Any, symbols: Symbols) -> Any:
    """Returns the inverse of `words_of`.

    Raises:
        Refused: It is none.
    """
    with _named():
        named = {name: symbol for symbol, name in symbols.names.items()}
        return _torch.expressions.from_words(written, named)


def number_of(written: Any, symbols: Symbols) -> Any:
    """Returns the symbolic number that is written.

    Raises:
        Refused: It is none.
    """
    expression = expression_of(written, symbols)
    with _named():
        return _torch.expressions.number_of(symbols.env, expression)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Refused(str(error)) from error
