"""Runs an author's in-place rule on a copy when its target shares fields with its base.

A rule for `mul_` that multiplies the scales is right for a whole tensor, and wrong for two of its columns: these have
the scales of whole rows. So there the rule writes a copy, and the view takes its values from that, as it does from any
other tensor. See Note [Fields shared by views].
"""

from __future__ import annotations

import functools
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.codegen import Source
from subclass_aot.base.operators import effects_of
from subclass_aot.kit.wrapper.declare.construct import inner_tensors
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import may_share, shared_fields
from subclass_aot.kit.wrapper.serve import rules
from subclass_aot.kit.wrapper.serve.copy_into import copy_into

aten: Any = torch.ops.aten


def run_on_copy_if_shared(cls: type[Wrapper], func: AnyOperator, rule: rules.Rule) -> rules.Rule:
    """Returns an author's rule that writes, changed to leave alone what is not in the tensor that it writes.

    Args:
        cls: The class for which the rule was found.
        func: The operator.
        rule: The author's function.

    Returns:
        A function that is called as the operator is; `rule` itself where that writes no values.
    """
    if not _torch.operators.is_overload(func) or not (written := effects_of(func).written):
        return rule
    if torch.Tag.inplace_view in func.tags or cls.reads_through:
        return rule
    effects, on_copies = effects_of(func), functools.partial(_on_copies, cls, func, rule)
    if written & effects.lists or len(written) > 1:
        return functools.wraps(rule)(lambda *args, **kwargs: on_copies(args, kwargs))
    (name,) = written
    position = list(effects.parameters).index(name)
    source = Source(f"{cls.__name__}_{func}", "*args, **kwargs", f"The rule of {cls.__name__} for {func}.")
    source.line(f"target = args[{position}] if len(args) > {position} else kwargs[{name!r}]")
    with source.block(f"if {may_share('target')}:"):
        source.line(f"return {source.const(on_copies, 'on_copies')}(args, kwargs)")
    source.line(f"return {source.const(rule, 'rule')}(*args, **kwargs)")
    return functools.wraps(rule)(source.build())


def _on_copies(
    cls: type[Wrapper], func: Operator, rule: rules.Rule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs a rule on a copy of each view that shares fields with the rest, and gives that the values of the copy."""
    bound, written = effects_of(func).bind(args, kwargs), effects_of(func).written
    targets: list[Any] = optree.tree_leaves([bound[name] for name in written & bound.keys()])  # type: ignore[arg-type]
    parts = [(target, shared) for target in targets if isinstance(target, cls) and (shared := _shared(target))]
    if not parts:
        return rule(*args, **kwargs)
    copies = {id(part): part.clone() for part, _ in parts}
    given: Any = (args, kwargs)
    given = optree.tree_map(lambda leaf: copies.get(id(leaf), leaf), given, none_is_leaf=True)
    out = rule(*given[0], **given[1])
    if out is NotImplemented:
        return out
    for part, shared in parts:
        _take(cls, part, copies[id(part)], shared)
    originals = {id(copies[id(part)]): part for part, _ in parts}
    return optree.tree_map(lambda leaf: originals.get(id(leaf), leaf), out, none_is_leaf=True)


def _shared(tensor: Any) -> list[str]:
    return shared_fields(tensor, tensor.__tensor_flatten__()[0])


def _take(cls: type[Wrapper], part: Any, copy: Any, shared: list[str]) -> None:
    """Gives a view the values of a changed copy of it: field by field, if those that it shares did not change."""
    mine, changed = inner_tensors(part), inner_tensors(copy)
    if all(_stayed(mine[name], changed[name]) for name in shared):
        for name in mine.keys() - shared:
            mine[name].copy_(changed[name])
    else:
        copy_into(cls, aten.copy_.default, part, copy)


def _stayed(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Returns whether a tensor is as it was; False for one without data."""
    if type(before) is not torch.Tensor or before.is_meta:
        return False
    if before.dtype.itemsize == 1:  # torch compares no float8
        before, after = before.view(torch.uint8), after.view(torch.uint8)
    return torch.equal(before, after)
