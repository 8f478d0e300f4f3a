"""Finds how an operator of a class is served, from its declaration and its rules, without a tensor."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator
from subclass_aot.base.operators import effects_of
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout import views
from subclass_aot.kit.wrapper.layout.cuts import CUTS
from subclass_aot.kit.wrapper.serve import errors, rules
from subclass_aot.kit.wrapper.serve.dispatch import ServedBy, served_by

aten: Any = torch.ops.aten


class Service(NamedTuple):
    """The way in which an operator is served.

    Attributes:
        how: In a few words; where nothing serves it, what is in the way of the fallback, "" if there is none.
        stub: A rule to paste, where nothing serves it; else "".
    """

    how: str
    stub: str = ""


def service_of(cls: type[Wrapper], func: AnyOperator) -> Service:
    """Returns how `func` is served on tensors of `cls`, as far as that does not depend on what a tensor holds.

    Args:
        cls: The wrapper class.
        func: The operator.

    >>> from subclass_aot import Int8Weight, LoraWeight, TwoTensor
    >>> service_of(TwoTensor, aten.mm.default).how, service_of(Int8Weight, aten.mul_.Tensor).how
    ('each inner tensor', 'to_plain and from_plain')
    >>> print(service_of(LoraWeight, aten.mul_.Tensor).stub)
        @LoraWeight.implements(torch.ops.aten.mul_.Tensor)
        def _(self, other):
            ...
    <BLANKLINE>
    """
    authors = rules.along_mro(cls, func)
    if authors:
        return Service(f"rule, {place_of(authors[0])}")
    how, is_served = _described(cls, func, served_by(cls, func))
    return Service(how) if is_served else Service(how, errors.stub(cls, func))


def _described(cls: type[Wrapper], func: AnyOperator, by: ServedBy) -> tuple[str, bool]:
    """Returns the text for what serves an operator, and whether that serves the operator."""
    declaration = cls.__wrapper_declaration__
    if by is ServedBy.NONE:
        return "", False
    if by is ServedBy.BUILT_IN and func is aten.copy_.default:
        return "built in, from_plain" if hasattr(cls, "from_plain") else "built in, from its own class only", True
    if by is ServedBy.BUILT_IN and views.is_view(func):
        if declaration.views is not None and (func in CUTS or not declaration.has_blocks):
            return "built in, by views=", True
        if declaration.fallback == "plain" and func not in views.IN_PLACE:
            return "built in, through the whole", True
        return 'views="blocks" cannot follow it' if declaration.has_blocks else "views= is not declared", False
    if by is ServedBy.PLAIN and _torch.operators.is_overload(func):
        effects = effects_of(func)
        if effects.viewed:
            return "built in, through the whole", effects.returns == ("tensor",)
        if effects.written:
            can_write = hasattr(cls, "from_plain")
            return "to_plain and from_plain" if can_write else "it writes, and there is no from_plain", can_write
    return by.value, True


def place_of(function: Any) -> str:
    """Returns the file and line in which a function is written."""
    code = inspect.unwrap(function).__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
