"""Does a rule take what it is called with? Asked when it is given, by the schemas of its operators."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import OperatorSet, without_out
from subclass_aot.errors import DefinitionError
from subclass_aot.kit.declaration import OperatorRule
from subclass_aot.kit.wrapper.declare import messages

_MEANT_FOR_THE_OPERATOR = ("op", "func", "operator")
"""Names of a first parameter. No operator has an argument of such a name."""


def check_arguments(cls: type, operators: Iterable[object], written: OperatorRule) -> None:
    """Refuses a rule that cannot be called with the arguments that its operators have at least.

    Without that, a call would raise a `TypeError`, of which Python's `+` makes "unsupported operand".

    Args:
        cls: The class that the rule is for.
        operators: Those that it is given for: overloads, packets, higher-order operators, or sets.
        written: The rule.

    Raises:
        DefinitionError: It does not take them, or takes the operator first where that does not come.
    """
    try:
        signature = inspect.signature(written.function)
    except (TypeError, ValueError):  # a function in C does not tell its parameters
        return
    first = next(iter(signature.parameters), None)
    for op in operators:
        overloads = _overloads(op)
        failed = [why for why in (_misfit(signature, each, written.takes_operator) for each in overloads) if why]
        if isinstance(op, OperatorSet):
            failed = ["it does not take the operator, and an argument after it"] * (not _takes_two(signature))
        elif overloads and not written.takes_operator and first in _MEANT_FOR_THE_OPERATOR:
            failed = [f"its first parameter is `{first}`, and gets the first argument"]
        elif len(failed) < len(overloads):
            continue  # of a packet some overloads fit
        if failed:
            told = {"cls": cls.__name__, "op": op, "why": failed[0], "signature": signature}
            name = getattr(written.function, "__name__", "_")
            rule = name if name.isidentifier() else "_"
            right = "(op, *args, **kwargs)" if written.takes_operator else _parameters(overloads[0])
            raise DefinitionError(messages.RULE_ARGUMENTS.format(**told, rule=rule, right=right))


def _overloads(op: Any) -> list[Operator]:
    """Returns the overloads that a rule for `op` serves, but for sets, which are open."""
    if _torch.operators.is_overload(op):
        return [op]
    if not _torch.operators.is_packet(op):
        return []
    return [each for each in (getattr(op, name) for name in op.overloads()) if without_out(each) is None]


def _misfit(signature: inspect.Signature, op: Operator, takes_operator: bool) -> str:
    """Says why a rule cannot be called with the required arguments of an operator; "" if it can."""
    required = [a for a in _torch.operators.schema_of(op).arguments if not a.has_default_value()]
    positional = [a.name for a in required if not a.kwarg_only]
    named = [a.name for a in required if a.kwarg_only]
    try:
        signature.bind(*["op"] * takes_operator, *positional, **dict.fromkeys(named))
    except TypeError as error:
        return str(error)
    return ""


def _takes_two(signature: inspect.Signature) -> bool:
    try:
        signature.bind_partial("op", "x")
    except TypeError:
        return False
    return True


def _parameters(op: Operator) -> str:
    """Returns the parameters of a rule for an operator, as they are written.

    >>> import torch
    >>> _parameters(torch.ops.aten.add.Tensor)
    '(self, other, *, alpha=1)'
    """
    told, is_named = [], False
    for argument in _torch.operators.schema_of(op).arguments:
        if argument.kwarg_only and not is_named:
            told.append("*")
            is_named = True
        told.append(f"{argument.name}={argument.default_value!r}" if argument.has_default_value() else argument.name)
    return f"({', '.join(told)})"
