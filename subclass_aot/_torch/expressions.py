"""Expressions over symbolic sizes as lists of a closed set of words, and solvers that are told them again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # brings sympy
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

Words = object
"""A number, the name of a symbol, or a list that begins with a word: a file has anything there."""

_DEPTH = 32
_PARTS = 400
_EXPONENT = 16
_NUMBER = 1 << 63

_OTHER = "{name} of sizes cannot be written. Compile with dynamic=False"
_BY_DATA = "{name} depends on data. Compile with dynamic=False"
_NO_EXPRESSION = "{written!r:.80} is no expression over symbols"
_TOO_LARGE = "an expression over symbols is too large"


@cache
def _words() -> dict[str, tuple[Any, bool, bool]]:
    """By word: the class, whether its arguments are numbers, and whether it is a number: otherwise, true or false."""
    import sympy
    from sympy.core import relational
    from torch.utils._sympy import functions  # where the functions are that torch makes sizes with

    numbers = [sympy.Add, sympy.Mul, sympy.Pow, sympy.Rational, functions.FloorDiv, functions.CleanDiv]
    numbers += [functions.Mod, functions.PythonMod, functions.Max, functions.Min, functions.IntTrueDiv]
    numbers += [functions.CeilToInt, functions.FloorToInt, functions.TruncToInt]
    numbers += [functions.IsNonOverlappingAndDenseIndicator]
    compared = [relational.Equality, relational.Unequality, relational.StrictLessThan, relational.LessThan]
    compared += [relational.StrictGreaterThan, relational.GreaterThan]
    found: dict[str, tuple[Any, bool, bool]] = {cls.__name__: (cls, True, True) for cls in numbers}
    found |= {cls.__name__: (cls, True, False) for cls in compared}
    return found | {cls.__name__: (cls, False, False) for cls in (sympy.And, sympy.Or, sympy.Not)}


def as_words(expression: sympy.Basic, names: Mapping[Any, str]) -> Words:
    """An expression as numbers, names and lists that begin with a word.

    Args:
        expression: The expression.
        names: The names of its symbols.

    Raises:
        ValueError: It has a symbol without a name, or a function that is not among the words.
    """
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        if expression not in names:
            raise ValueError(_BY_DATA.format(name=expression))
        return names[expression]
    name = "Rational" if expression.is_Rational else type(expression).__name__
    if name not in _words() or name != "Rational" and type(expression) is not _words()[name][0]:
        raise ValueError(_OTHER.format(name=name))
    if expression.is_Rational:
        return [name, int(expression.p), int(expression.q)]
    return [name, *(as_words(part, names) for part in expression.args)]


def from_words(written: Words, symbols: Mapping[str, Any], is_number: bool) -> Any:
    """The inverse of `as_words`. No text is evaluated: each word stands for one class.

    Args:
        written: What `as_words` gave.
        symbols: By name.
        is_number: Whether a number is wanted, and not what is true or false.

    Raises:
        ValueError: It is no such thing, or too large.
    """
    left = [_PARTS]

    def read(part: Words, is_number: bool, depth: int, power: int) -> Any:
        left[0] -= 1
        if not left[0] or depth > _DEPTH or power > _EXPONENT:  # a power is printed as a product
            raise ValueError(_TOO_LARGE)
        if is_number and type(part) is int and abs(part) < _NUMBER:
            return _integer(part)
        if is_number and type(part) is str and part in symbols:
            return symbols[part]
        if type(part) is not list or len(part) < 2 or type(part[0]) is not str or part[0] not in _words():
            raise ValueError(_NO_EXPRESSION.format(written=part))
        cls, of_numbers, gives_number = _words()[part[0]]
        if gives_number is not is_number or not _fits(part):
            raise ValueError(_NO_EXPRESSION.format(written=part))
        if cls is _words()["Pow"][0]:
            power *= part[2]
        given = [read(x, of_numbers, depth + 1, power) for x in part[1:]]
        try:
            return cls(*given)
        except _OF_SYMPY as error:
            raise ValueError(_NO_EXPRESSION.format(written=part)) from error

    found = read(written, is_number, 0, 1)
    if found.free_symbols - set(symbols.values()) or found.has(*_no_numbers()):
        raise ValueError(_NO_EXPRESSION.format(written=written))
    return found


def _fits(part: list[Any]) -> bool:
    """Whether words of which more is asked have it: a power may be no larger than what a size is made of."""
    if part[0] == "Pow":
        return len(part) == 3 and type(part[2]) is int and 0 < part[2] <= _EXPONENT
    if part[0] == "Rational":
        return len(part) == 3 and type(part[1]) is int and type(part[2]) is int and 0 < part[2] < _NUMBER
    return True


def _integer(number: int) -> Any:
    import sympy

    return sympy.Integer(number)


_OF_SYMPY = (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError)
"""By the count or the kinds of arguments, or a division by zero."""


@cache
def _no_numbers() -> tuple[Any, ...]:
    import sympy
    from torch.utils._sympy.numbers import int_oo

    return sympy.oo, -sympy.oo, sympy.zoo, sympy.nan, int_oo, -int_oo


def sizes_of(env: ShapeEnv, symbols: Mapping[Any, str]) -> dict[str, tuple[int, str]]:
    """By the name of each symbol: the size of the example, and where it is read."""
    return {
        name: (int(env.backed_var_to_val[symbol]), str(env.var_to_sources[symbol][0].name))
        for symbol, name in symbols.items()
    }


def guards_of(env: ShapeEnv) -> list[Any]:
    """What a solver assumed, in order, as it was asked."""
    return [guard.expr for guard in env.guards]


def assume(env: ShapeEnv, expression: sympy.Basic) -> bool:
    """Has a solver assume what is so in the example; False if it is not."""
    import sympy

    return env.evaluate_expr(expression) in (True, sympy.true)


def limit(env: ShapeEnv, symbol: sympy.Symbol, least: int | None, most: int | None) -> None:
    """Tells a solver the least and the greatest value of a symbol.

    Raises:
        ValueError: The example is another.
    """
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    value = int(env.backed_var_to_val[symbol])
    if not (-int_oo if least is None else least) <= value <= (int_oo if most is None else most):
        raise ValueError(f"the example of a symbol is {value}, which is not among {least} to {most}")
    limits = ValueRanges(-int_oo if least is None else least, int_oo if most is None else most)
    env.var_to_range[symbol] = env.var_to_range[symbol] & limits


def known(env: ShapeEnv, expression: sympy.Basic) -> Any:
    """An expression, with what is known of its symbols by now in their place.

    One that turned out to be a number stays: it is an input or output of a graph still.
    """
    found = env.replace(expression)
    return expression if found.is_Integer else found


def beside(expression: sympy.Basic) -> Any:
    """The same expression, as another key."""
    import sympy

    return sympy.UnevaluatedExpr(expression)


def how_often_beside(expression: sympy.Basic) -> tuple[Any, int]:
    """An expression as it was before `beside`, and how often that was applied."""
    import sympy

    count = 0
    while isinstance(expression, sympy.UnevaluatedExpr):
        expression, count = expression.args[0], count + 1
    return expression, count


def number_of(env: ShapeEnv, expression: sympy.Basic) -> Any:
    """The number that an expression is; a symbolic one, but for an expression that is a number itself.

    Raises:
        ValueError: In the example it is no whole number.
    """
    expression = known(env, expression)
    value: Any = expression.xreplace(env.backed_var_to_val)
    if not value.is_Integer or abs(int(value)) >= _NUMBER:
        raise ValueError(_NO_EXPRESSION.format(written=expression))
    if expression.is_Integer:
        return int(value)
    return env.create_symintnode(expression, hint=int(value))
