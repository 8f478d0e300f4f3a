"""Sizes that only the call knows: symbols, what was assumed about them, and numbers made of them.

Note [Symbolic sizes]
~~~~~~~~~~~~~~~~~~~~~
While a program is traced, a size may be a `torch.SymInt`: an expression over symbols. Two kinds of symbols exist. The
size of an input is read from the input at the call, and every assumption that the program makes about it (a branch, a
shape that must fit) becomes a guard. The size of a result that depends on data is unbacked: it is known once the
operator has run, and gets no guards, only runtime asserts.

Sizes of zero and one are never symbols: broadcasting makes too much of them.

The second size that is met makes a symbol of it, and what the trace assumed of the symbol is a line of the guard:

>>> import torch
>>> import subclass_aot as sa
>>> compiled = sa.aot_compile(lambda x: x.sum(0), fw_compiler="eager")
>>> y, z = compiled(torch.ones(3, 4)), compiled(torch.ones(5, 4))
>>> print(compiled.source)
def call(...):
    ...
    s0 = ...
    if not (s0 >= 2): return MISS
    ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import is_user_file, pass_on_interruption, user_line_in
from subclass_aot.base.put_back import PutBack
from subclass_aot.meta.symbols.numbers import Bounds, NoAnswer, Number, forget

if TYPE_CHECKING:  # comes with the first symbol
    import sympy


class Symbols:
    """The symbols of one trace.

    Args:
        env: The solver that has them already, if they are another's: it guards what is assumed of them.

    >>> symbols = Symbols()
    >>> symbols.text(symbols.size(8, "x.size(0)") * 2), symbols.size(1, "x.size(1)")
    ('2*s0', 1)
    """

    _are_guarded = True  # for `__del__`, if a handler of a signal raises in `__init__`

    def __init__(self, env: object = None) -> None:
        self._are_guarded = True  # until there is a solver: a signal may come while it is made
        self.env: Any = _torch.symbolic.shape_env() if env is None else env
        self._are_guarded = env is not None
        self.symints: dict[Any, Any] = {}
        """For each symbol, the number that is nothing but it."""
        self.places: dict[Any, tuple[int, int, int]] = {}
        """For each size that depends on data, where its operator gives it: in which result, in which dimension, and how
        many times."""
        self._names: dict[Any, str] = {}
        self._where: dict[Any, str] = {}
        self._unbacked: list[Any] = []
        self._again: list[Any] = []
        self._told = 0  # how many assumptions were given, and not made by a program

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self._are_guarded and not is_finalizing():  # else what would be called is gone
            forget(self.env)

    def size(self, hint: int, where: str, bounds: Bounds | None = None) -> Number:
        """Returns a size that is `hint` in the example.

        Args:
            hint: The size of the example.
            where: Where it is read, as `args[0].size(1)`.
            bounds: The least and the greatest value that the user promised.
        """
        number: Number = _torch.symbolic.new_size(self.env, hint, where, bounds)
        if isinstance(number, torch.SymInt):
            symbol = _torch.symbolic.expression_of(number)
            self._names[symbol] = f"s{len(self._names)}"
            self._where[symbol] = where
            self.symints[symbol] = number
        return number

    @property
    def names(self) -> dict[Any, str]:
        """The names of the sizes of inputs, by symbol, in the order in which they were made."""
        return dict(self._names)

    def tell(self, expression: sympy.Basic) -> bool:
        """Assumes something that another trace has assumed; False if it is not so in the example."""
        holds = _torch.expressions.assume(self.env, expression)
        self._told = len(self.env.guards)
        return holds

    def unbacked(self, kind: str = "size", bounds: Bounds = (0, None), is_checked: bool = True) -> Any:
        """Returns a number that depends on data: a `"size"`, an `"int"`, a `"float"` or a `"bool"`.

        Args:
            kind: Which of these.
            bounds: The least and the greatest value that a size is said to have.
            is_checked: Whether each call checks that, and does not trust the operator.
        """
        number = self._again.pop(0) if self._again else _torch.symbolic.new_unbacked(self.env, kind, bounds, is_checked)
        self._unbacked.append(number)
        self.symints.setdefault(_torch.symbolic.original_expression_of(number), number)
        return number

    def take_fresh_unbacked(self) -> list[Any]:
        """Returns the numbers that depend on data and were made since the last call of this."""
        take_fresh_unbacked, self._unbacked = self._unbacked, []
        return take_fresh_unbacked

    def answer(self, value_of: Callable[[Any], Any], is_cautious: bool) -> None:
        """Registers what gives the values of data-dependent numbers: what the program assumes of them, calls check.

        Args:
            value_of: Gives the value of a symbol, or None.
            is_cautious: Whether operators get values also where a guess would do: whether a size is one, say.
        """
        _torch.symbolic.tell_unknowns(self.env, value_of, is_cautious)

    def repeat(self, symints: list[Any]) -> None:
        """Registers the numbers that an operator made, for when it runs again."""
        self._again = list(symints)

    @property
    def repeats(self) -> bool:
        """Whether the operator that runs is one that has made numbers before."""
        return bool(self._again)

    @contextmanager
    def within_budget(self) -> Iterator[None]:
        """Runs the block in which the solver may take so many steps and no more; see Note [Steps of the solver].

        Raises:
            NoAnswer: It found no answer.
        """

        def refuse(expressions: tuple[Any, ...]) -> NoAnswer:
            symbols = {symbol for expression in expressions for symbol in expression.free_symbols}
            concerned = [where for symbol, where in self._where.items() if symbol in symbols]
            return NoAnswer(concerned or list(self._where.values()))

        with _torch.solver_steps.counted(refuse):
            yield

    def text(self, number: Any) -> str:
        """Returns a number or an assumption as Python text, with the names of the symbols for symbols.

        >>> symbols = Symbols()
        >>> symbols.text(symbols.size(8, "x.size(0)") // 2)
        's0 // 2'
        """
        if isinstance(number, int):
            return str(number)
        expression = _torch.symbolic.expression_of(number) if hasattr(number, "node") else number
        names = {symbol: self._names.get(symbol, str(symbol)) for symbol in expression.free_symbols}
        return _torch.symbolic.as_python(expression, names)

    def assumptions(self, known: Collection[str] | None = None) -> list[tuple[str, str]]:
        """Returns what must hold for the trace to be right, as Python text, each with a place in the source or ''.

        What must hold of numbers that depend on data is among `runtime_asserts`.

        Args:
            known: The names of the symbols that some input has, where the others have no part in the graph.
        """
        names = {symbol: name for symbol, name in self._names.items() if known is None or name in known}
        found: dict[str, str] = {}
        ranges: Mapping[Any, tuple[int | None, int | None]] = _torch.symbolic.value_ranges(self.env)
        for symbol, name in names.items():
            least, most = ranges[symbol]
            if least is not None:
                found[f"{name} >= {least}"] = ""
            if most is not None:
                found[f"{name} <= {most}"] = ""
        for expression, place in _torch.symbolic.assumptions(self.env, self._told):
            if expression.free_symbols <= names.keys():
                found.setdefault(self.text(expression), place)
        return list(found.items())

    def pinned(self) -> list[tuple[str, int, str]]:
        """Returns the sizes of inputs that began as symbols and are numbers now, since something assumed what they are.

        Each is given as where it is read, the number, and the place in the source that assumed it, or "".

        >>> symbols = Symbols()
        >>> bool(symbols.size(8, "x.size(0)") == 8), symbols.pinned()[0][:2]
        (True, ('x.size(0)', 8))
        """
        numbers = {symbol: _torch.symbolic.expression_of(self.symints[symbol]) for symbol in self._where}
        place_of = partial(_torch.symbolic.place_of_number, self.env, without_place=self._told)
        return [(self._where[s], int(n), place_of(s)) for s, n in numbers.items() if n.is_number]

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Runs the block so that nothing more is assumed: the guard that checks what is assumed is made already.

        Raises:
            MoreAssumed: Something would have been, and what caused it did not work without.
        """
        refused: list[str] = []
        if self._are_guarded:
            yield
            return

        def refuse(expression: Any) -> None:
            refused.append(self.text(expression))
            raise MoreAssumed(refused[-1])

        with _torch.symbolic.no_more_guards(self.env, refuse):
            try:
                yield
            except Exception as error:  # the compiler raised it
                pass_on_interruption(error)
                if refused:  # compilers pack it into errors of their own
                    raise MoreAssumed(refused[-1]) from error
                raise

    def runtime_asserts(self) -> list[RuntimeAssert]:
        """Returns what must hold of numbers that depend on data: the call checks it once they are known."""
        found = []
        for expression, stack, assumed in _torch.symbolic.assertions(self.env):
            if expression.free_symbols and expression.free_symbols <= self.symints.keys():
                symints = {symbol: self.symints[symbol] for symbol in expression.free_symbols}
                by = (
                    "assumed"
                    if assumed
                    else "stated"
                    if _torch.symbolic.is_checked_by(is_user_file, stack)
                    else "needed"
                )
                found.append(RuntimeAssert(expression, symints, user_line_in(stack), by))  # type: ignore[arg-type]
        return found


class MoreAssumed(NotImplementedError):
    """Something would be assumed of symbolic sizes that no guard checks."""

    def __init__(self, what: str) -> None:
        super().__init__(f"it would assume more of symbolic sizes than the call has checked: {what}")


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeAssert:
    """A condition of the program on numbers that only the run knows.

    Attributes:
        expression: What.
        symints: The numbers in it, by symbol.
        line: Where the program says it.
        by: Who says it. "stated": the user, with `torch._check`. "assumed": nobody, but it was so in the call that was
            traced, and the program went on accordingly, as after `if n > 3`. "needed": an operator, of its arguments.
    """

    expression: Any
    symints: Mapping[Any, Any]
    line: str
    by: Literal["stated", "assumed", "needed"]

    def text(self, names: Mapping[Any, str]) -> str:
        """Returns the expression as Python text."""
        return _torch.symbolic.as_python(self.expression, names)


def current_symbols() -> Symbols | None:
    """Returns the symbols of the trace that runs, if it has any."""
    return _symbols.get()


@contextmanager
def unbacked_sizes(symbols: Symbols | None) -> Iterator[None]:
    """Runs the block so that what depends on data becomes a symbol instead of an error, if there are symbols."""
    with PutBack(partial(_symbols.set, _symbols.get())):
        _symbols.set(symbols)
        yield


_symbols: ContextVar[Symbols | None] = ContextVar("symbols", default=None)
