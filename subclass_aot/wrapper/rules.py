"""The rules of each class, and how the one for an operator is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from subclass_aot import _torch
from subclass_aot._torch import AnyOperator
from subclass_aot.errors import DefinitionError
from subclass_aot.wrapper import messages

if TYPE_CHECKING:  # which is made with this
    from subclass_aot.wrapper.base import WrapperTensor

Rule = Callable[..., Any]
RuleT = TypeVar("RuleT", bound=Rule)


def register(cls: type[WrapperTensor], operators: tuple[Any, ...], rule: Rule) -> None:
    """Gives `cls` (and, unless they have their own, its subclasses) a rule for operators.

    Args:
        cls: The wrapper class.
        operators: Overloads, packets (every overload), or higher-order operators.
        rule: Called with the operator's own arguments.

    Raises:
        DefinitionError: Something is not an operator, or is one that never arrives.
    """
    for op in operators:
        if _torch.is_overload(op):
            if _torch.can_decompose(op):
                raise DefinitionError(messages.COMPOSITE_RULE.format(cls=cls.__name__, op=op))
        elif not (_torch.is_packet(op) or _torch.is_higher_order(op)):
            raise DefinitionError(messages.NOT_AN_OPERATOR.format(cls=cls.__name__, value=op))
    cls.__wrapper_declaration__.rules.update(dict.fromkeys(operators, rule))
    forget_handlers(cls)


def forget_handlers(cls: type[WrapperTensor]) -> None:
    """Drops what was cached for `cls` and its subclasses; the next call of each operator looks its rule up again."""
    cls.__dict__["_handlers"].clear()
    for subclass in cls.__subclasses__():
        forget_handlers(subclass)


def along_mro(cls: type[WrapperTensor], func: AnyOperator) -> list[Rule]:
    """The authors' rules for `func`, nearest class first; in one class an overload's rule goes before its packet's.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        The rules.
    """
    keys = (func, func.overloadpacket) if _torch.is_overload(func) else (func,)
    bases = cls.__mro__[: cls.__mro__.index(torch.Tensor)]
    declared = [vars(base)["__wrapper_declaration__"] for base in bases if "__wrapper_declaration__" in vars(base)]
    return [declaration.rules[key] for declaration in declared for key in keys if key in declaration.rules]
