"""What is behind symbolic numbers, such that sympy computes each expression once in a trace.

Note [Nodes of symbols]
~~~~~~~~~~~~~~~~~~~~~~~
Behind a symbolic number is a node of torch's, which has an expression of sympy. Each operator on numbers makes a new
node, and has sympy compute its expression, although a trace asks the same questions again and again: whether two
tensors are of one size, whether a stride is that of a packed tensor. One such question takes sympy up to milliseconds.

So a solver of this library has one node for each expression, and a node keeps what was computed of it: results of
operators, by the other operand, and what it was in a branch. All of it stays right while a trace goes on: a solver
learns more, and forgets nothing. Where a tracer of torch's notes operators on numbers (`make_fx`), nothing is kept.

Torch makes nodes in many places, and none of these takes a class. So a node gets another class when it was made.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch

from subclass_aot.base._torch.exact_floats import exact_operators, negative_zero
from subclass_aot.base._torch.polynomials import SIGNS, Polynomials
from subclass_aot.base._torch.solver_steps import ask
from subclass_aot.base.put_back import PutBack, attributes_put_back

if TYPE_CHECKING:  # brings sympy
    import sympy
    from torch._guards import Source
    from torch.fx.experimental.sym_node import SymNode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

_OF_TWO = (
    "add", "sub", "mul", "mod", "int_floordiv", "float_pow", "pow_by_natural", "float_truediv", "int_truediv", "eq",
    "ne", "gt", "lt", "le", "ge", "and_", "or_", "sym_max", "sym_min",
)  # fmt: skip
_OF_ONE = ("sym_not", "sym_float", "neg", "floor", "ceil", "trunc")
_OF_STRIDES = (
    "is_contiguous", "is_channels_last_contiguous_2d", "is_channels_last_contiguous_3d", "is_channels_last_strides_2d",
    "is_channels_last_strides_3d", "is_non_overlapping_and_dense_indicator",
)  # fmt: skip
_NODES, _NUMBERS, _POLYNOMIALS = "subclass_aot_nodes", "subclass_aot_numbers", "subclass_aot_polynomials"
_COUNTER = "_replacements_version_counter"
"""The attribute in which a solver counts the symbols that it has replaced, and a node reads whether there were more."""
_PROXY = torch._C._TorchDispatchModeKey.PROXY  # no public function says whether `make_fx` traces


def keeping(node: SymNode) -> SymNode:
    """Returns the one node for an expression that its solver has, which keeps what is computed of it.

    Args:
        node: A node that torch has made.
    """
    from torch.fx.experimental.sym_node import SymNode

    if type(node) is not SymNode or node.constant is not None or node.fx_node:
        return node
    nodes: dict[object, SymNode] = vars(node.shape_env).setdefault(_NODES, {})
    key = node._expr, node.pytype
    found = nodes.get(key)
    if found is None:
        found = nodes[key] = _with_answers(node)
    return found if found._hint == node._hint else node


@cache
def solver_with_nodes() -> type[ShapeEnv]:
    """Returns the class of a solver whose symbols have such nodes, and that keeps its answers on these."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    class Solver(ShapeEnv):
        def create_symintnode(self, sym: sympy.Expr, *, hint: Any, source: Source | None = None) -> int | torch.SymInt:
            made = super().create_symintnode(sym, hint=hint, source=source)
            return torch.SymInt(keeping(made.node)) if isinstance(made, torch.SymInt) else made

        def create_symfloatnode(self, sym: sympy.Expr, *, hint: Any, source: Source | None = None) -> Any:
            return _with_kept_node(super().create_symfloatnode(sym, hint=hint, source=source))

        def create_unbacked_symfloat(self) -> torch.SymFloat:
            return cast(torch.SymFloat, _with_kept_node(super().create_unbacked_symfloat()))

        def evaluate_sym_node(
            self, sym_node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None
        ) -> sympy.Basic:
            known: sympy.Basic | None = vars(sym_node).get("_answer")
            if known is not None:
                return known
            evaluate = super().evaluate_sym_node
            answer = ask((sym_node._expr,), evaluate, sym_node, size_oblivious, fallback_value)
            # The answer stands in a guard then. What data decides, a guess may have answered.
            if type(sym_node) is _node_class() and sym_node.has_hint() and not self._suppress_guards_tls():
                vars(sym_node)["_answer"] = answer
                question = vars(sym_node).get("_question")
                if question is not None:
                    polynomials_of(self).learn(question, bool(answer))
            return answer

        def _should_skip_static_eval(self, expr: sympy.Basic) -> bool:
            """Has nothing deduced of floats that data decides: each may be any number, so what is stated is checked."""
            return _is_order_of_floats(self, expr) or super()._should_skip_static_eval(expr)

        def _maybe_guard_rel(self, expr: sympy.Basic) -> None:  # type: ignore[override]  # torch has a cache there
            if not _is_order_of_floats(self, expr):  # of them torch keeps no ranges
                super()._maybe_guard_rel(expr)

    return Solver


def _is_order_of_floats(solver: ShapeEnv, expression: sympy.Basic) -> bool:
    """Returns whether an expression says which of two numbers is greater, over floats that data decides only.

    False where it is known by now.
    """
    from sympy.core.relational import GreaterThan, LessThan, StrictGreaterThan, StrictLessThan
    from torch.fx.experimental.symbolic_shapes import canonicalize_bool_expr
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    if not isinstance(expression, LessThan | GreaterThan | StrictLessThan | StrictGreaterThan):
        return False
    symbols = expression.free_symbols
    are_floats = bool(symbols) and all(symbol_is_type(symbol, SymT.UNBACKED_FLOAT) for symbol in symbols)
    return are_floats and canonicalize_bool_expr(expression) not in solver.axioms


def _with_kept_node(number: float | torch.SymFloat) -> float | torch.SymFloat:
    return torch.SymFloat(keeping(number.node)) if isinstance(number, torch.SymFloat) else number


def known_answer(node: SymNode) -> bool | None:
    """Returns what a condition is, if that is the same for all sizes, or a guard checks it; else None."""
    answer = vars(node).get("_answer", node._expr)
    return bool(answer) if answer in (True, False) else None


def polynomials_of(solver: Any) -> Polynomials:
    """Returns what a solver has of polynomials."""
    known = vars(solver)
    found: Polynomials | None = known.get(_POLYNOMIALS)
    if found is None:
        found = known[_POLYNOMIALS] = Polynomials(solver)
    return found


def forget_nodes(solver: object) -> None:
    """Drops the nodes of a solver, which refer to it and to one another."""
    vars(solver).pop(_POLYNOMIALS, None)
    for name in (_NODES, _NUMBERS):
        for node in vars(solver).pop(name, {}).values():
            vars(node)["_found"].clear()


def _with_answers(node: SymNode) -> SymNode:
    node.__class__ = _node_class()
    vars(node)["_found"] = {}
    return node


@cache
def _node_class() -> type[SymNode]:
    from torch.fx.experimental.sym_node import SymNode

    class Node(SymNode):
        def maybe_as_int(self) -> int | None:
            version: int | None = getattr(self.shape_env, _COUNTER, None)  # with it, the expression changes
            known: tuple[int | None, int | None] | None = vars(self).get("_whole")
            if known is None or version is None or known[0] != version:
                known = vars(self)["_whole"] = version, super().maybe_as_int()
            return known[1]

        def evaluate(self, size_oblivious: bool = False) -> Any:
            answer = vars(self).get("_answer")
            return super().evaluate(size_oblivious) if answer is None else answer

        def guard_or_false(self, file: str, line: int) -> bool:
            answer = known_answer(self)
            return super().guard_or_false(file, line) if answer is None else answer

        def guard_or_true(self, file: str, line: int) -> bool:
            answer = known_answer(self)
            return super().guard_or_true(file, line) if answer is None else answer

        def wrap_int(self, num: int) -> SymNode:
            return _of_number(self, num, super().wrap_int)

        def wrap_float(self, num: float) -> SymNode:
            return _of_number(self, num, super().wrap_float)

    _replace_operators(Node)
    if _COUNTER in cast(Any, SymNode.expr).fget.__code__.co_names:  # not in torch 2.11, whose nodes keep no expression
        cast(Any, Node).expr = property(_expression)
    return Node


def _replace_operators(node_class: type[SymNode]) -> None:
    """Has the operators of nodes keep their results, and those of floats compute what is written.

    A graph that is run again computes its numbers, and no block replaces the operators of all nodes then.
    """
    for name, method in exact_operators().items():
        setattr(node_class, name, method)
    for names, kept in ((_OF_TWO, _of_two), (_OF_ONE, _of_one), (_OF_STRIDES, _of_strides)):
        for name in names:
            setattr(node_class, name, kept(name, getattr(node_class, name)))


def _of_number(node: SymNode, number: float, wrap: Callable[[Any], SymNode]) -> SymNode:
    """Returns the one node for a number that a solver has."""
    numbers: dict[object, SymNode] = vars(node.shape_env).setdefault(_NUMBERS, {})
    key = float.hex(number) if type(number) is float else number  # zero has two signs, and NaN is not equal to itself
    if key not in numbers:
        made = wrap(number)
        if key == float.hex(-0.0):
            made._expr = negative_zero()
        numbers[key] = _with_answers(made)
    return numbers[key]


def _expression(node: Any) -> Any:
    """Returns the expression of a node, with what its solver has found out by now."""
    version = node.shape_env._replacements_version_counter
    if version == 0 or node.constant is not None:
        return node._expr
    return node._expr_cache if version == node._expr_ver else super(_node_class(), node).expr


_KEPT_OF_NUMBERS = ("add", "sub", "mul", "radd", "rsub", "rmul", "eq", "ne", "lt", "le", "gt", "ge")


@contextmanager
def results_of_numbers_kept() -> Iterator[None]:
    """Runs the block so that what Python computes of two sizes is kept on the node of the first, as an object.

    Torch finds out of both what they are, each time, before it makes a node.
    """
    places = [(torch.SymInt, f"__{name}__") for name in _KEPT_OF_NUMBERS]
    with PutBack(attributes_put_back(places)):
        for cls, name in places:
            setattr(cls, name, _kept_of_numbers(name, getattr(cls, name)))
        yield


def _kept_of_numbers(name: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(number: Any, other: Any) -> Any:
        kind = type(other)
        if kind is torch.SymInt:
            key: Any = other.node
        elif kind is int:
            key = other
        else:
            return compute(number, other)
        found = getattr(number.node, "_found", None)
        if found is None or torch._C._get_dispatch_mode(_PROXY) is not None:
            return compute(number, other)
        result = found.get((name, kind, key))
        if result is None:
            result = found[name, kind, key] = compute(number, other)
        return result

    return method


def _of_two(name: str, compute: Callable[[SymNode, SymNode], SymNode]) -> Callable[[SymNode, SymNode], SymNode]:
    if name in SIGNS:
        compute = _comparison(name, compute)
    elif name == "int_floordiv":
        compute = _quotient(compute)
    elif name == "mod":
        compute = _rest(compute)
    elif name in ("sym_max", "sym_min"):
        compute = _extreme(compute, is_least=name == "sym_min")

    def method(self: SymNode, other: SymNode) -> SymNode:
        if torch._C._get_dispatch_mode(_PROXY) is not None:
            return compute(self, other)
        found: dict[object, SymNode] = self._found  # type: ignore[attr-defined]  # each node of this class has it
        key = name, other
        result = found.get(key)
        if result is None:
            result = found[key] = keeping(ask((self._expr, other._expr), compute, self, other))
        return result

    return method


_OfTwo = Callable[["SymNode", "SymNode"], "SymNode"]


def _comparison(name: str, compute: _OfTwo) -> _OfTwo:
    """Returns what compares two numbers without sympy, where it is one answer for all sizes."""
    compares = getattr(operator, name)

    def compare(self: SymNode, other: SymNode) -> SymNode:
        import sympy
        from torch.fx.experimental.sym_node import SymNode

        if self.pytype is not int or other.pytype is not int or self._hint is None or other._hint is None:
            return compute(self, other)
        solver = self.shape_env
        found = polynomials_of(solver).decide(name, self.expr, other.expr)
        if type(found) is bool and found == compares(self._hint, other._hint):
            return SymNode(sympy.true if found else sympy.false, solver, bool, found)
        result = compute(self, other)
        if type(found) is tuple:
            vars(keeping(result))["_question"] = found
        return result

    return compare


def _quotient(compute: _OfTwo) -> _OfTwo:
    """Returns what divides without sympy, where no rest is left for any size."""

    def divide(self: SymNode, other: SymNode) -> SymNode:
        from torch.fx.experimental.sym_node import SymNode

        if self._hint is None or other._hint is None:
            return compute(self, other)
        found = polynomials_of(self.shape_env).quotient(self.expr, other.expr)
        if found is None:
            return compute(self, other)
        return SymNode(found, self.shape_env, int, self._hint // other._hint)  # type: ignore[operator]

    return divide


def _extreme(compute: _OfTwo, is_least: bool) -> _OfTwo:
    """Returns what gives the greater or the lesser of two numbers without sympy, where it is the same for all sizes."""

    def extreme(self: SymNode, other: SymNode) -> SymNode:
        if self.pytype is int and other.pytype is int and self._hint is not None and other._hint is not None:
            is_greater, is_less = polynomials_of(self.shape_env).signs(self.expr, other.expr)
            if is_greater or is_less:
                return self if is_greater is not is_least else other
        return compute(self, other)

    return extreme


def _rest(compute: _OfTwo) -> _OfTwo:
    def rest(self: SymNode, other: SymNode) -> SymNode:
        from torch.fx.experimental.sym_node import SymNode

        if self.pytype is int and other.pytype is int and self._hint is not None and other._hint is not None:
            found = polynomials_of(self.shape_env).rest(self.expr, other.expr)
            if found is not None:
                return SymNode(found, self.shape_env, int, self._hint % other._hint)  # type: ignore[operator]
        result = compute(self, other)
        _write_padding_as_quotient(result)
        return result

    return rest


def _write_padding_as_quotient(node: SymNode) -> None:
    """Writes what is missing to a multiple of a number, `-n % 8` and `(8 - n % 8) % 8`, as `8 * ((n + 7) // 8) - n`.

    Sympy finds by itself then how many chunks of 8 there are. In sums of remainders it does not, and looks for long.
    """
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

    found = cast(Any, node._expr)
    if not isinstance(found, Mod | PythonMod):
        return
    missing, whole = found.args
    rest = whole - missing
    is_twice = isinstance(rest, Mod | PythonMod) and rest.args[1] == whole
    length = rest.args[0] if is_twice else -missing
    if whole.is_Integer and (is_twice or length.is_nonnegative):
        node._expr = whole * FloorDiv(length + whole - 1, whole) - length


def _of_one(name: str, compute: Callable[[SymNode], SymNode]) -> Callable[[SymNode], SymNode]:
    def method(self: SymNode) -> SymNode:
        if torch._C._get_dispatch_mode(_PROXY) is not None:
            return compute(self)
        found: dict[object, SymNode] = self._found  # type: ignore[attr-defined]  # as above
        if name not in found:
            found[name] = keeping(ask((self._expr,), compute, self))
        return found[name]

    return method


_OfStrides = Callable[["SymNode", "list[SymNode]", "list[SymNode]"], "SymNode"]


def _of_strides(name: str, compute: _OfStrides) -> _OfStrides:
    def method(self: SymNode, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        if torch._C._get_dispatch_mode(_PROXY) is not None:
            return compute(self, sizes, strides)
        found: dict[object, SymNode] = self._found  # type: ignore[attr-defined]  # as above
        key = (name, *sizes, *strides)
        if key not in found:
            asked = tuple([node._expr for node in (*sizes, *strides)])
            found[key] = keeping(ask(asked, compute, self, sizes, strides))
        return found[key]

    return method
