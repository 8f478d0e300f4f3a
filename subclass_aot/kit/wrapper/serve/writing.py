"""Operators that write and have no rule: the rule of the operator that returns what they write, and `copy_`."""

from __future__ import annotations

import functools
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.operators import OperatorKind, effects_of, kind_of, out_of_place, without_out
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.serve import errors, rules
from subclass_aot.kit.wrapper.serve.check import checked


def writing_rules(cls: type[Wrapper], func: AnyOperator) -> list[rules.Rule]:
    """Returns authors' rules for `mul` as rules for `mul_` and `mul` with `out=`: compute, and copy the result there.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        Rules for `func`, nearest class first; none unless it writes one tensor and returns it.
    """
    if not _torch.operators.is_overload(func) or len(effects_of(func).returned) != 1:
        return []
    other = out_of_place(func) if kind_of(func) is OperatorKind.IN_PLACE else without_out(func)
    return [] if other is None else [_writing(cls, func, other, rule) for rule in rules.along_mro(cls, other)]


def _writing(cls: type[Wrapper], func: Operator, other: Operator, rule: rules.Rule) -> rules.Rule:
    compute = checked(cls, other, rule, lambda: _declines)
    (name,), taken = effects_of(func).returned, effects_of(other).parameters

    @functools.wraps(rule)
    def write(*args: Any, **kwargs: Any) -> Any:
        target = kwargs[name] if name in kwargs else args[0]
        new = compute(*args, **{key: value for key, value in kwargs.items() if key in taken})
        if new is NotImplemented:
            return new
        if new.shape != target.shape or not torch.can_cast(new.dtype, target.dtype):
            why = f"{other} gives {list(new.shape)} of {new.dtype}; `{name}` is {list(target.shape)} of {target.dtype}"
            raise errors.no_rule(cls, func, args, kwargs, why)
        try:
            target.copy_(new)
        except OperatorRuleError as error:
            why = f"{other} has a rule, but `copy_` cannot write what that returns into `{name}`"
            raise errors.no_rule(cls, func, args, kwargs, why) from error
        return target

    return write


def _declines(*args: object, **kwargs: object) -> Any:
    return NotImplemented
