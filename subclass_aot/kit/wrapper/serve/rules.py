"""The rules of each class, and how the one for an operator is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator
from subclass_aot.base.operators import OperatorSet, without_out
from subclass_aot.errors import DefinitionError
from subclass_aot.kit.declaration import OperatorRule
from subclass_aot.kit.wrapper.declare import messages
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.serve import kernels
from subclass_aot.kit.wrapper.serve.rule_arguments import check_arguments

Rule = Callable[..., Any]
RuleT = TypeVar("RuleT", bound=Rule)


def register(cls: type[Wrapper], operators: tuple[Any, ...], rule: Rule) -> None:
    """Gives `cls` (and, unless they have their own, its subclasses) a rule for operators.

    Args:
        cls: The wrapper class.
        operators: Overloads, packets (every overload but those with `out=`), higher-order operators, or operator sets.
        rule: Called with the operator's own arguments; if one of `operators` is a set, with the operator before them.

    Raises:
        DefinitionError: Something is not an operator, or is one that never arrives; two sets of the class hold the
            same operators, and neither is a part of the other; or the rule does not take what it is called with.
    """
    for op in operators:
        if isinstance(op, OperatorSet):
            _check_overlap(cls, op, operators)
        elif _torch.operators.is_overload(op):
            if _torch.operators.can_decompose(op):
                raise DefinitionError(messages.COMPOSITE_RULE.format(cls=cls.__name__, op=op))
        elif not (_torch.operators.is_packet(op) or _torch.operators.is_higher_order(op)):
            raise DefinitionError(messages.NOT_AN_OPERATOR.format(cls=cls.__name__, value=op))
    written = OperatorRule(rule, takes_operator=any(isinstance(op, OperatorSet) for op in operators))
    check_arguments(cls, operators, written)
    cls.__wrapper_declaration__.rules.update(dict.fromkeys(operators, written))
    forget_handlers(cls)


def _check_overlap(cls: type[Wrapper], new: OperatorSet, operators: tuple[Any, ...]) -> None:
    """Refuses two sets of operators that overlap, if neither is a part of the other: the smaller one is the nearer."""
    for other in (*cls.__wrapper_declaration__.rules, *operators):
        if isinstance(other, OperatorSet) and new.shares(other) and not (new <= other or other <= new):
            raise DefinitionError(messages.SETS_OVERLAP.format(cls=cls.__name__, first=other, second=new))


def forget_handlers(cls: type[Wrapper]) -> None:
    """Drops what was cached for `cls` and its subclasses; the next call of each operator looks its rule up again."""
    cls.__dict__["_handlers"].clear()
    kernels.forget(cls)
    for subclass in cls.__subclasses__():
        forget_handlers(subclass)


def along_mro(cls: type[Wrapper], func: AnyOperator) -> list[Rule]:
    """Returns the authors' rules for `func`, nearest class first.

    In one class the rule of an overload goes before that of its packet, and that before those of sets, of which a
    part goes before the whole.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        Functions of the operator's arguments.
    """
    bases = cls.__mro__[: cls.__mro__.index(torch.Tensor)]
    declared = [vars(base)["__wrapper_declaration__"] for base in bases if "__wrapper_declaration__" in vars(base)]
    return [rule.bound_to(func) for declaration in declared for rule in _rules_for(func, declaration.rules)]


def _rules_for(func: AnyOperator, rules: Mapping[object, OperatorRule]) -> list[OperatorRule]:
    keys: list[object] = [func]
    if (
        _torch.operators.is_overload(func) and without_out(func) is None
    ):  # others are computed by the rule for that, and copied
        keys.append(func.overloadpacket)
    sets = [key for key in rules if isinstance(key, OperatorSet) and func in key]
    narrow_first = sorted(sets, key=lambda one: -sum(one <= other for other in sets))  # each is a part of the next
    return [rules[key] for key in (*keys, *narrow_first) if key in rules]
