"""Sums and products of floating-point symbols, in the order in which the program has them.

Note [Symbols are no real numbers]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The solver computes with real numbers: `(r + 0.1) + 0.2` is `r + 0.3` to it, `r * r * r` a power, `r - r` and `r * 0.0`
are zero. Of floating-point numbers the first two are others in the last bit, and the last two may be NaN. So sums and
products of them are functions here that the solver does not know, and that are computed as they were written. Its zero
has no sign, so the negative one is a product, `0.0 * -1.0`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from subclass_aot.base.put_back import PutBack, attributes_put_back

if TYPE_CHECKING:
    import sympy
    import torch
    from torch.fx.experimental.sym_node import SymNode


@cache
def functions() -> dict[str, Any]:
    """Gives the functions of sympy by the names that torch has for such operators: `add` and `mul`."""
    import sympy
    from torch.utils._sympy.interp import handlers

    class FloatAdd(sympy.Function):  # type: ignore[misc]  # sympy has no types
        """A sum of two floating-point numbers."""

        is_real = True

        @classmethod
        def eval(cls, first: sympy.Basic, second: sympy.Basic) -> object:
            return _computed(operator.add, first, second)

        def _torch_sympystr(self, printer: Any) -> str:  # by which torch's printers write it, inductor's too
            return f"({printer.doprint(self.args[0])} + {printer.doprint(self.args[1])})"

    class FloatMul(sympy.Function):  # type: ignore[misc]
        """A product of two floating-point numbers."""

        is_real = True

        @classmethod
        def eval(cls, first: sympy.Basic, second: sympy.Basic) -> object:
            return _computed(operator.mul, first, second)

        def _torch_sympystr(self, printer: Any) -> str:
            return f"({printer.doprint(self.args[0])} * {printer.doprint(self.args[1])})"

    found = {"add": FloatAdd, "mul": FloatMul}
    handlers().update({function: name for name, function in found.items()})  # by which torch evaluates expressions
    return found


def _computed(function: Callable[[float, float], float], first: sympy.Basic, second: sympy.Basic) -> object:
    """Returns the result of two numbers; None where one is a symbol, or the result is the negative zero."""
    import sympy

    if not (first.is_number and second.is_number):
        return None
    found = function(_value(first), _value(second))
    if found or math.copysign(1.0, found) > 0:
        return sympy.Float(found)
    return None if (_value(first), _value(second)) == (0.0, -1.0) else negative_zero()


def _value(number: sympy.Basic) -> float:
    return -0.0 if isinstance(number, functions()["mul"]) else float(number)


def negative_zero() -> sympy.Basic:
    """Returns an expression that is computed as the negative zero."""
    import sympy

    return functions()["mul"](sympy.Float(0.0), sympy.Float(-1.0))


@contextmanager
def sums_and_products_are_exact() -> Iterator[None]:
    """Runs the block so that no solver rearranges arithmetic of floats; see Note [Symbols are no real numbers]."""
    from torch.fx.experimental.sym_node import SymNode

    methods = exact_operators()
    with PutBack(attributes_put_back([(SymNode, name) for name in methods])):
        for name, method in methods.items():
            setattr(SymNode, name, method)
        yield


@cache
def exact_operators() -> dict[str, Callable[..., SymNode]]:
    """Gives methods of nodes that compute sums and products of floats as they are written, by the names of torch's."""
    from torch.fx.experimental.sym_node import SymNode

    torchs = {name: getattr(SymNode, name) for name in ("_add", "_sub", "_mul", "_neg", "_float_truediv")}
    add, mul = (_exact(SymNode, name) for name in ("add", "mul"))

    def minus(node: SymNode) -> SymNode:
        return mul(node, node.wrap_float(-1.0))

    def sub(node: SymNode, other: SymNode) -> SymNode:
        return add(node, minus(other))

    def divided(node: SymNode, other: SymNode) -> SymNode:
        result: SymNode = torchs["_float_truediv"](node, other)
        if node.expr.is_number and _is_negative(other.expr) and result.expr.is_zero:
            return minus(result)
        return result

    def for_floats(name: str, of_floats: Callable[..., SymNode]) -> Callable[..., SymNode]:
        def method(node: SymNode, *others: SymNode) -> SymNode:
            are_floats = all(each.pytype is float for each in (node, *others))
            return of_floats(node, *others) if are_floats and not _is_proxied() else torchs[name](node, *others)

        return method

    of_floats: tuple[Callable[..., SymNode], ...] = (add, sub, mul, minus, divided)
    return {name: for_floats(name, method) for name, method in zip(torchs, of_floats, strict=True)}


def _is_negative(expression: sympy.Basic) -> bool:
    return expression.is_number and math.copysign(1.0, _value(expression)) < 0


def _is_proxied() -> bool:
    """Returns whether torch records what happens to symbols, as for the branches of `torch.cond`."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


def _exact(node_class: type[SymNode], name: str) -> Callable[[SymNode, SymNode], SymNode]:
    """Makes an operator of two numbers of a solver."""
    python = getattr(operator, name)

    def method(node: SymNode, other: SymNode) -> SymNode:
        expression = functions()[name](node.expr, other.expr)
        hint = None if node.hint is None or other.hint is None else python(node.hint, other.hint)
        return node_class(expression, node.shape_env, float, hint)

    return method


def power(base: torch.SymFloat, exponent: object) -> Any:
    """Returns a power whose base is positive. The public operator has torch check that once more, at each call."""
    return base.__float_pow__(exponent)
