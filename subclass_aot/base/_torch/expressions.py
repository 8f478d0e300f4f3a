"""Expressions over symbolic sizes as lists of a closed set of words, and solvers that read them back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # brings sympy
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

Words = object
"""A number, the name of a symbol, or a list that begins with a word: a file has anything there."""

_OTHER = "{name} of sizes cannot be written. Compile with dynamic=False"
_BY_DATA = "{name} depends on data. Compile with dynamic=False"
_NO_EXPRESSION = "{written!r:.80} is no expression over symbols"


@cache
def _words() -> dict[str, Any]:
    """Gives the classes of expressions by their words."""
    import sympy
    from sympy.core import relational
    from torch.utils._sympy import functions  # where the functions are that torch makes sizes with

    numbers = [sympy.Add, sympy.Mul, sympy.Pow, sympy.Rational, functions.FloorDiv, functions.CleanDiv]
    numbers += [functions.Mod, functions.PythonMod, functions.Max, functions.Min, functions.IntTrueDiv]
    numbers += [functions.CeilToInt, functions.FloorToInt, functions.TruncToInt]
    numbers += [functions.IsNonOverlappingAndDenseIndicator]
    compared = [relational.Equality, relational.Unequality, relational.StrictLessThan, relational.LessThan]
    compared += [relational.StrictGreaterThan, relational.GreaterThan]
    return {cls.__name__: cls for cls in (*numbers, *compared, sympy.And, sympy.Or, sympy.Not)}


def as_words(expression: sympy.Basic, names: Mapping[Any, str]) -> Words:
    """Returns an expression as numbers, names and lists that begin with a word.

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
    if name not in _words() or name != "Rational" and type(expression) is not _words()[name]:
        raise ValueError(_OTHER.format(name=name))
    if expression.is_Rational:
        return [name, int(expression.p), int(expression.q)]
    return [name, *(as_words(part, names) for part in expression.args)]


def from_words(written: Words, symbols: Mapping[str, Any]) -> Any:
    """Makes the inverse of `as_words`. No text is evaluated: each word stands for one class.

    Args:
        written: What `as_words` gave.
        symbols: By name.

    Raises:
        ValueError: It is no such thing.
    """
    import sympy

    if type(written) is int:
        return sympy.Integer(written)
    if type(written) is str and written in symbols:
        return symbols[written]
    if not isinstance(written, list) or written[0] not in _words():
        raise ValueError(_NO_EXPRESSION.format(written=written))
    return _words()[written[0]](*(from_words(part, symbols) for part in written[1:]))


def sizes_of(env: ShapeEnv, symbols: Mapping[Any, str]) -> dict[str, tuple[int, str]]:
    """Returns for the name of each symbol the size in the example, and the place where it is read."""
    return {
        name: (int(env.backed_var_to_val[symbol]), str(env.var_to_sources[symbol][0].name))
        for symbol, name in symbols.items()
    }


def guards_of(env: ShapeEnv) -> list[Any]:
    """Returns what a solver assumed, in the order of its guards."""
    return [guard.expr for guard in env.guards]


def assume(env: ShapeEnv, expression: sympy.Basic) -> bool:
    """Has a solver assume what is so in the example; False if it is not."""
    import sympy

    return env.evaluate_expr(expression) in (True, sympy.true)


def limit(env: ShapeEnv, symbol: sympy.Symbol, least: int | None, most: int | None) -> None:
    """Limits a symbol of a solver to values between the least and the greatest.

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
    """Returns an expression, with what is known of its symbols by now in their place.

    One that proved to be a number stays: it is an input or output of a graph still.
    """
    found = env.replace(expression)
    return expression if found.is_Integer else found


def beside(expression: sympy.Basic) -> Any:
    """Returns the same expression, as another key."""
    import sympy

    return sympy.UnevaluatedExpr(expression)


def how_often_beside(expression: sympy.Basic) -> tuple[Any, int]:
    """Returns an expression as it was before `beside`, and how often that was applied."""
    import sympy

    count = 0
    while isinstance(expression, sympy.UnevaluatedExpr):
        expression, count = expression.args[0], count + 1
    return expression, count


def number_of(env: ShapeEnv, expression: sympy.Basic) -> Any:
    """Returns the number that an expression is; a symbolic one, but for an expression that is a number itself.

    Raises:
        ValueError: In the example it is no whole number.
    """
    expression = known(env, expression)
    value: Any = expression.xreplace(env.backed_var_to_val)
    if not value.is_Integer:
        raise ValueError(_NO_EXPRESSION.format(written=expression))
    if expression.is_Integer:
        return int(value)
    return env.create_symintnode(expression, hint=int(value))
