"""Symbolic numbers, and torch's solver for them."""

from __future__ import annotations

import logging
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from traceback import FrameSummary
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import torch
from torch import fx

from subclass_aot.base._stack import PACKAGE
from subclass_aot.base._torch.plain_subclasses import classes_see
from subclass_aot.base._torch.solver_steps import ask
from subclass_aot.base._torch.symbol_nodes import forget_nodes, known_answer, polynomials_of, solver_with_nodes
from subclass_aot.base._torch.wrappers import is_nested_int
from subclass_aot.base.put_back import PutBack, attributes_put_back

if TYPE_CHECKING:  # brings sympy
    import sympy
    from torch.fx.experimental.sym_node import SymNode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
"""A symbolic number."""


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": torch.sym_sqrt, "log2": torch._sym_log2,  # type: ignore[attr-defined]  # made by a loop
}  # fmt: skip
"""Functions of symbols, by the names that `math` has for them."""


def shape_env() -> Any:
    """Returns torch's solver for symbolic sizes.

    Importing it brings sympy, so it waits for the first trace that wants one.
    """
    return _solver_class()(tracked_fakes=[])  # which `torch.export` wants, that compilers may call


def forget_answers(solver: Any) -> None:
    """Forgets what a solver has answered: torch keeps it in caches of the class, which refer to the solver.

    A cache that is of no use any more would keep it until another solver is queried. When it goes: that.
    """
    forget_nodes(solver)
    for method in vars(type(solver).__mro__[-2]).values():
        getattr(method, "cache_clear", int)()


@cache
def _solver_class() -> Any:
    import sympy
    from sympy.logic.boolalg import Boolean
    from torch.fx.experimental.symbolic_shapes import uninteresting_files
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    class Solver(solver_with_nodes()):  # type: ignore[misc]  # mypy follows no class that a function gives
        """Learns that a size by data is zero or one, where a program says so.

        Torch's own keeps such a size a symbol, since it answers some questions as if there were two or more: then the
        code that inductor makes for `x * y` would read a `y` of one element as if it had as many as `x`.

        Where an operator is content with a guess (`guard_or_false`), and the guess is wrong of values that are known,
        these decide.

        Attributes:
            is_cautious: They decide in any case.
        """

        is_cautious = False

        def evaluate_sym_node(
            self, sym_node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None
        ) -> Any:
            values = self.real_tensor_prop_unbacked_vals
            asked = self.simplify(sym_node.expr) if values and not sym_node.has_hint() else sympy.true
            unbacked = [s for s in asked.free_symbols if symbol_is_type(s, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))]
            if unbacked and all(s in values for s in unbacked):
                if _follows(self, asked):
                    return True
                if self._maybe_evaluate_static(asked) is None:
                    actual = asked.xreplace({s: values[s] for s in unbacked}).xreplace(self.backed_var_to_val)
                    is_size = fallback_value is not None or not isinstance(asked, Boolean)
                    if self.is_cautious or actual != fallback_value:
                        fallback_value = None
                    if fallback_value is None and is_size:
                        _learn(self, asked, unbacked)
            return super().evaluate_sym_node(_with_value(self, sym_node), size_oblivious, fallback_value)

        def _get_user_frame(self) -> FrameType | None:
            """Passes by what is of this library: torch calls a method of ours, and would take that for the user's."""
            frame: FrameType | None = super()._get_user_frame()
            passed = uninteresting_files()
            while frame is not None and (
                frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_filename in passed
            ):
                frame = frame.f_back
            return frame

        def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
            if tgt.is_Integer and tgt < 2:
                self.size_like.discard(a)
            super()._set_replacement(a, tgt, msg)

    return Solver


def _follows(solver: Any, asked: sympy.Basic) -> bool:
    """Returns whether an equation follows from those stated before, perhaps with one of sizes of inputs more.

    Parts that a program splits a tensor into have its size together, also where a part turns out to be one row, and the
    size of another tensor that is as long.
    """
    import sympy

    if not isinstance(asked, sympy.Eq):
        return False
    stated = {each.expr for listed in solver.deferred_runtime_asserts.values() for each in listed}
    for equation in map(solver.simplify, stated):
        if not isinstance(equation, sympy.Eq) or not {*equation.args} & {*asked.args}:
            continue
        left = {*equation.args} ^ {*asked.args}  # what they do not have in common
        if not left:
            return True
        is_of_inputs = all(side.free_symbols <= solver.backed_var_to_val.keys() for side in left)
        if is_of_inputs and bool(solver.evaluate_expr(sympy.Eq(*left))):
            return True
    return False


def _with_value(solver: Any, node: SymNode) -> SymNode:
    """Returns a floating-point number of sizes with its value in the example: torch takes the whole part for that."""
    if node.pytype is not float or node.has_hint() or not solver.real_tensor_prop_unbacked_vals:
        return node
    expression = solver.simplify(node.expr)
    value = expression.xreplace(solver.backed_var_to_val)
    return type(node)(expression, solver, float, float(value)) if value.is_number else node


def _learn(solver: Any, asked: sympy.Basic, unbacked: list[Any]) -> None:
    """Assumes what decides a question about sizes by data: that there are elements, or else their values."""
    import sympy
    from torch.utils._sympy.functions import Max

    values = solver.real_tensor_prop_unbacked_vals
    if asked.has(Max):  # only strides have one
        for symbol in unbacked:
            if values[symbol] >= 1:
                solver.evaluate_expr(sympy.Ge(symbol, 1))
        asked = solver.simplify(asked)
        unbacked = [symbol for symbol in unbacked if symbol in asked.free_symbols]
    if unbacked and not _is_solved(asked, unbacked):
        for symbol in unbacked:  # of `2 - u0 % 2 == 1` it would record nothing that inductor reads
            solver.evaluate_expr(sympy.Eq(symbol, values[symbol]))


def _is_solved(asked: sympy.Basic, symbols: list[Any]) -> bool:
    """Returns whether the solver can solve an equation for a symbol: there is one, and it is linear."""
    import sympy

    linear = (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Number, sympy.core.relational.Relational)
    return len(symbols) == 1 and all(isinstance(part, linear) for part in sympy.preorder_traversal(asked))


def new_size(env: ShapeEnv, hint: int, name: str, bounds: tuple[int, int | None] | None) -> Any:
    """Returns a symbolic size, or the number itself where torch never makes it symbolic (zero and one).

    Args:
        env: The solver.
        hint: The size of the example.
        name: What errors of the solver call it.
        bounds: The least and the greatest value that the user promised.
    """
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    source = ConstantSource(name)
    symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
    if symbol.is_Integer:
        return int(symbol)
    if bounds is not None:
        least, most = bounds
        limits = ValueRanges(max(least, 2), int_oo if most is None else most)
        env.var_to_range[symbol] = env.var_to_range[symbol] & limits
    return env.create_symintnode(symbol, hint=hint, source=source)


def new_unbacked(env: Any, kind: str, bounds: tuple[int, int | None] = (0, None), is_checked: bool = True) -> Any:
    """Returns a number that depends on data: a "size", which is not negative, an "int", a "float" or a "bool".

    Of a size it is demanded that it lies within the bounds, as by `torch._check`, which has no public name; where it is
    not checked, it is known.
    """
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

    make = {"bool": env.create_unbacked_symbool, "float": env.create_unbacked_symfloat}
    number = make.get(kind, env.create_unbacked_symint)()
    if kind == "size":
        least, most = bounds
        _constrain_range_for_size(number, **({} if is_checked else {"min": least, "max": most}))
        if least > 0 and is_checked:
            torch._check(number >= least)
        if most is not None and is_checked:
            torch._check(number <= most)
    env.pending_fresh_unbacked_symbols.clear()  # which operator made it is known here, and not to be searched for
    return number


class _CacheableSymFloat(torch.SymFloat):
    """A `SymFloat` that is its name in a key of inductor's cache, as `SymInt` and `SymBool` are there without this."""

    def __reduce__(self) -> Any:
        return str, (str(self),)

    def __deepcopy__(self, memo: object) -> _CacheableSymFloat:
        return self


def cacheable(number: torch.SymFloat) -> torch.SymFloat:
    """Returns the same symbolic float, such that inductor keeps what it compiles for it."""
    return _CacheableSymFloat(number.node)  # type: ignore[no-untyped-call]


@overload
def is_symbolic(value: int | torch.SymInt) -> TypeGuard[torch.SymInt]: ...
@overload
def is_symbolic(value: object) -> TypeGuard[Symbolic]: ...
def is_symbolic(value: object) -> TypeGuard[Symbolic]:
    """Returns whether a value is a number that only the call knows."""
    # Nobody derives from these, and `isinstance` would have each tensor without data say what it is.
    return type(value) in _SYMBOLIC and not is_nested_int(value)


_SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})


def solver_of(number: Symbolic) -> Any:
    """Returns the `ShapeEnv` that a symbolic number belongs to."""
    return number.node.shape_env


def expression_of(number: Symbolic) -> Any:
    """Returns the sympy expression of a symbolic number, as known now; numbers have no public access to it."""
    return number.node.expr


def original_expression_of(number: Symbolic) -> Any:
    """Returns the sympy expression that a symbolic number was made with, whatever is known of it by now."""
    return number.node._expr


def symbol_and_factor(expression: Any) -> tuple[Any, int]:
    """Returns a symbol and how many times it is taken, if an expression is that; else the expression once."""
    factor, symbol = expression.as_coeff_Mul()
    return (symbol, int(factor)) if symbol.is_Symbol and factor.is_Integer and factor > 0 else (expression, 1)


def value_ranges(env: ShapeEnv) -> dict[Any, tuple[int | None, int | None]]:
    """Returns for each symbol of a solver the least and the greatest value that were assumed; None where there is
    none.
    """
    found = {}
    for symbol, limits in env.var_to_range.items():
        found[symbol] = tuple(int(x) if x.is_Integer else None for x in (limits.lower, limits.upper))
    return found  # type: ignore[return-value]


@contextmanager
def no_more_guards(env: Any, refuse: Callable[[Any], None]) -> Iterator[None]:
    """Runs the block so that `refuse(expression)` is called before a solver assumes something more of sizes of inputs.

    A check of a data-dependent number is a runtime assert, and not refused. `ShapeEnv.error_on_new_guards` is not there
    in torch 2.11, and raises for such checks, too.
    """
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    def check_frozen(expression: sympy.Basic, value: object) -> None:
        unbacked = any(symbol_is_type(s, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)) for s in expression.free_symbols)
        if not unbacked and not env._suppress_guards_tls():
            refuse(expression)

    assert "_check_frozen" not in vars(env), "a block within a block"
    with PutBack(attributes_put_back([(env, "_check_frozen")])):
        env._check_frozen = check_frozen  # which a solver calls before it adds a guard
        yield


def assumptions(env: Any, without_place: int = 0) -> list[tuple[Any, str]]:
    """Returns what the solver assumed of its symbols on the way: simplified expressions, each with a place in the
    source.

    Args:
        env: The solver.
        without_place: How many of the first were given to it, and have no place.
    """
    found: list[tuple[Any, str]] = []
    for number, guard in enumerate(env.guards):
        expression = ask((guard.expr,), lambda: env.simplify(env.replace(guard.expr)))  # noqa: B023  # `ask` calls it at once
        if expression not in (True, False):
            found.append((expression, "" if number < without_place else _place_of(guard)))
    return found


def place_of_number(env: Any, symbol: Any, without_place: int = 0) -> str:
    """Returns the place in the source where a solver assumed what number a symbol is; "" where that is not known.

    Args:
        env: The solver.
        symbol: The symbol, which is a number by now.
        without_place: How many of the first assumptions were given to it, and have no place.
    """
    import sympy

    guards = [guard for guard in env.guards[without_place:] if symbol in guard.expr.free_symbols]
    equal = [guard for guard in guards if isinstance(guard.expr, sympy.Eq) and len(guard.expr.free_symbols) == 1]
    return _place_of((equal or guards)[-1]) if guards else ""


def _place_of(guard: Any) -> str:
    frame = guard.sloc.framework_loc
    return guard.sloc.maybe_user_loc or (f"{frame.filename}:{frame.lineno}" if frame is not None else "")


def assertions(env: ShapeEnv) -> list[tuple[Any, Any, bool]]:
    """Returns what must hold of data-dependent numbers, as `torch._check` demanded, each with its stack.

    The third element says that the program only assumed it: see `tell_unknowns`.
    """
    asserts = [a for group in env.deferred_runtime_asserts.values() for a in group]
    return [(a.expr, a.stack.summary(), str(a.msg).startswith(_ASSUMED)) for a in asserts]


def is_checked_by(is_file: Callable[[str], bool], stack: Sequence[FrameSummary]) -> bool:
    """Returns whether code of some files called `torch._check` itself, in the stack of an assertion.

    Args:
        is_file: Says which files.
        stack: From the outermost frame to the innermost.
    """
    names = [frame.filename for frame in stack]
    check = max((i for i, name in enumerate(names) if name.endswith(os.path.join("torch", "__init__.py"))), default=0)
    while check and names[check].endswith(os.path.join("torch", "__init__.py")):
        check -= 1
    return is_file(names[check])


def as_python(expression: sympy.Basic, names: Mapping[Any, str]) -> str:
    """Returns a sympy expression as Python text; torch's own printer knows the functions that sizes are made with."""
    from torch.utils._sympy.printers import PythonPrinter

    class Printer(PythonPrinter):
        def _print_Symbol(self, expr: sympy.Basic) -> str:
            return names[expr]

        def _print_IsNonOverlappingAndDenseIndicator(self, expr: sympy.Basic) -> str:
            return f"torch.utils._sympy.functions.{expr.func.__name__}({', '.join(map(self._print, expr.args))})"

    text: str = Printer().doprint(expression)
    return text


def evaluate(expression: sympy.Basic, values: Mapping[Any, Any]) -> Any:
    """Computes a sympy expression by Python operators on `values`, which may be proxies of a graph."""
    from torch.utils._sympy.interp import sympy_interp

    with classes_see("functions"):  # proxies are a class, and have to
        return sympy_interp(_operators_of_python(), dict(values), expression)


@cache
def _operators_of_python() -> type:
    """Returns what sympy's functions are in Python.

    `PythonReferenceAnalysis` leaves some to sympy, which does not compute with proxies, and takes others from `math`,
    which proxies do not have; compilers know both as targets of nodes.
    """
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    def on_proxies(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(x: Any, *more: int) -> Any:
            if isinstance(x, fx.Proxy):
                return x.tracer.create_proxy("call_function", function, (x, *more), {})
            return function(x, *more)

        return call

    floor, ceil, trunc, rounded = [on_proxies(function) for function in (math.floor, math.ceil, math.trunc, round)]

    class Operators(PythonReferenceAnalysis):
        int_truediv = staticmethod(operator.truediv)
        floor_to_int = staticmethod(lambda x, dtype: floor(x))
        ceil_to_int = staticmethod(lambda x, dtype: ceil(x))
        trunc_to_int = staticmethod(lambda x, dtype: trunc(x))
        round_to_int = staticmethod(lambda x, dtype: rounded(x))
        round_decimal = staticmethod(rounded)
        floor = staticmethod(lambda x: torch.sym_float(floor(x)))
        ceil = staticmethod(lambda x: torch.sym_float(ceil(x)))

        @staticmethod
        def reciprocal(x: Any) -> Any:
            return 1 / x

        @staticmethod
        def square(x: Any) -> Any:
            return x * x

    return Operators


def is_true_here(condition: bool | torch.SymBool) -> bool:
    """Returns whether a condition holds in this call, and puts a guard on it; false where data decides it.

    It is public in a module that is not. Torch's own shape functions read sizes so.
    """
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return bool(guard_or_false(condition))


def statically_known_true(condition: bool | torch.SymBool) -> bool:
    """Returns whether a condition on sizes holds for all sizes that are possible. Assumes nothing new."""
    if isinstance(condition, bool):
        return condition
    known = known_answer(condition.node)
    if known is not None:
        return known
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return ask((original_expression_of(condition),), lambda: bool(statically_known_true(condition)))


def depends_on_data(number: object) -> bool:
    """Returns whether a number is symbolic, and no call has it beforehand. No public function asks it of a number."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    if not isinstance(number, torch.SymInt) or number.node.is_nested_int():
        return False
    return any(symbol_is_type(s, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)) for s in expression_of(number).free_symbols)


def bindings_of(env: ShapeEnv, symints: list[Any], result: object) -> Any:
    """Returns where in an operator's result its unbacked numbers are found, as inductor wants it on the node."""
    from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings, free_unbacked_symbols

    fresh = free_unbacked_symbols(result)  # of others nobody will read the value
    env.pending_fresh_unbacked_symbols[:] = [s for n in symints for s in n.node.expr.free_symbols if s in fresh]
    return compute_unbacked_bindings(env, result)


def tell_unknowns(env: Any, value_of: Callable[[Any], Any], is_cautious: bool) -> None:
    """Has a solver decide what a program assumes of numbers that depend on data, where their values are known.

    Each assumption is then among `assertions`, by its message. Torch does so where it propagates real tensors.

    Args:
        env: The solver.
        value_of: Gives the value of a symbol, or None.
        is_cautious: Whether they decide, too, where an operator is content with a guess.
    """
    env.real_tensor_prop_unbacked_vals = _ValuesOfUnknowns(value_of)
    env.is_cautious = is_cautious


class _ValuesOfUnknowns(dict[Any, Any]):
    """Queried when a value is needed, and not before: each costs a run of what was recorded."""

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        super().__init__()
        self.value_of = value_of

    def __len__(self) -> int:
        return 1

    def __contains__(self, symbol: object) -> bool:
        return bool(getattr(symbol, "is_Symbol", False)) and self.value_of(symbol) is not None

    def __getitem__(self, symbol: sympy.Basic) -> Any:
        import sympy

        return sympy.sympify(self.value_of(symbol))

    def get(self, symbol: sympy.Basic, default: object = None) -> Any:
        return self[symbol] if symbol in self else default  # noqa: SIM401  # it is `get`


@contextmanager
def quiet_about_unknowns() -> Iterator[None]:
    """Runs the block so that the solver logs no warning for each assumption about data-dependent numbers."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_ASSUMED)

    with PutBack(partial(log.removeFilter, passes)):
        log.addFilter(passes)
        yield


_ASSUMED = "propagate_real_tensors"


def is_unbacked_asked(error: BaseException) -> bool:
    """Returns whether an error says that a program branches on a number that depends on data."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, GuardOnDataDependentSymNode)


def example_of(size: int | torch.SymInt) -> int:
    """Returns the value of a size in the example that is traced; for a symbolic one, without a guard on it.

    Raises:
        TypeError: It depends on data, and no example has it.
    """
    if not isinstance(size, torch.SymInt):
        return size
    if not size.node.has_hint():
        raise TypeError(f"{size} has no example")
    return int(size.node.hint)


def has_example(number: Any) -> bool:
    """Returns whether a symbolic number has a value in the example that is traced: data does not decide it."""
    return bool(number.node.has_hint())


def value_of(number: torch.SymFloat) -> Any:
    """Returns the value that a number has in the call that is traced, if that is known; nothing is assumed of it."""
    env, expression = solver_of(number), expression_of(number)
    values = getattr(env, "real_tensor_prop_unbacked_vals", {})
    if not isinstance(values, _ValuesOfUnknowns):
        return None
    known = env.backed_var_to_val
    found = {s: int(known[s]) if s in known else values.value_of(s) for s in expression.free_symbols}
    return None if None in found.values() else evaluate(expression, found)


def are_one(first: torch.SymFloat, second: torch.SymFloat) -> bool:
    """Returns whether two symbolic numbers are one number to the solver."""
    return bool(first.node.expr == second.node.expr)


def likely_of(number: int | torch.SymInt, guess: int) -> int:
    """Returns the value of a number in the example that is traced, with a guess for each symbol that depends on data.

    No guard is put on it, and no public query tells the values of symbols. When it goes: `example_of`.

    Args:
        number: The number.
        guess: What such a symbol is taken for.
    """
    if not isinstance(number, torch.SymInt) or number.node.has_hint():
        return example_of(number)
    expression, known = expression_of(number), solver_of(number).backed_var_to_val
    return int(evaluate(expression, {symbol: known.get(symbol, guess) for symbol in expression.free_symbols}))


def is_same_expression(one: int | torch.SymInt, other: int | torch.SymInt) -> bool:
    """Returns whether two numbers are one expression, as known now. Nothing is computed."""
    if type(one) is int or type(other) is int:
        return type(one) is type(other) and one == other
    first, second = one.node, other.node  # type: ignore[union-attr]
    if first is second or bool(first.expr == second.expr):
        return True
    return polynomials_of(first.shape_env).same(first.expr, second.expr)


def least_of(number: int | torch.SymInt) -> int:
    """Returns a number that a size is never less than; a very small one where nobody can tell at once."""
    if isinstance(number, int):
        return number
    solver = solver_of(number)
    found = _least(expression_of(number), solver.var_to_range, vars(solver).setdefault(_LEASTS, {}))
    return _NO_LEAST if found is None else found


def keep_least(number: torch.SymInt, least: int) -> None:
    """Keeps what a number is never less than, after a guard was put on that."""
    vars(solver_of(number)).setdefault(_LEASTS, {})[expression_of(number)] = least


def is_greater_product(great: int | torch.SymInt, small: int | torch.SymInt) -> bool:
    """Returns whether a number is known to be greater than another since it is that one times others.

    Strides of outer dims are such products. Division by sympy would find it, and takes much longer.
    """
    if not isinstance(great, torch.SymInt):
        return False
    times, factors = expression_of(great).as_coeff_Mul()
    by, others = expression_of(small).as_coeff_Mul() if isinstance(small, torch.SymInt) else (small, None)
    left = dict(factors.as_powers_dict())
    for base, exponent in ({} if others is None else others.as_powers_dict()).items():
        left[base] = left.get(base, 0) - exponent
    are_whole = all(int(exponent) == exponent >= 0 for exponent in left.values() if not getattr(exponent, "args", ()))
    if by <= 0 or not are_whole or any(getattr(exponent, "args", ()) for exponent in left.values()):
        return False
    solver = solver_of(great)
    known = vars(solver).setdefault(_LEASTS, {})
    leasts = [(_least(base, solver.var_to_range, known), int(exponent)) for base, exponent in left.items() if exponent]
    if any(least is None or least < 1 for least, _ in leasts):
        return False
    return bool(times * math.prod(least**exponent for least, exponent in leasts) > by)  # type: ignore[operator]


_LEASTS = "subclass_aot_leasts"
_NO_LEAST = -(1 << 62)


def _least(expression: Any, ranges: Mapping[Any, Any], known: dict[Any, int | None]) -> int | None:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        lower = ranges[expression].lower if expression in ranges else None
        return int(lower) if lower is not None and lower.is_Integer else None
    if not expression.args:  # it is a number with a fraction
        return None
    if expression not in known:  # of symbols it may become more, which would do no harm to leave out
        known[expression] = _least_of_parts(expression, [_least(part, ranges, known) for part in expression.args])
    return known[expression]


def _least_of_parts(expression: Any, parts: list[int | None]) -> int | None:
    """Returns it by what the parts of an expression are never less than."""
    name, given = type(expression).__name__, [n for n in parts if n is not None]
    if name == "Max":
        return max(given, default=None)
    if len(given) < len(parts):
        return None
    if expression.is_Add:
        return sum(given)
    if min(given) < 0:
        return None
    if expression.is_Mul:
        return math.prod(given)
    if expression.is_Pow and expression.exp.is_Integer:
        return int(given[0] ** given[1])
    if name == "FloorDiv":
        return given[0] // given[1] if expression.args[1].is_Integer and given[1] else 0
    return 0 if name == "Mod" else None
