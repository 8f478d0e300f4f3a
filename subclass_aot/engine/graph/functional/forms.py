"""One operator under functionalization, with the strides and the draws that it has without.

Where functionalization computes the new value of a tensor, it takes the strides of what an operator without mutation
returns. In-place operators keep those of the tensor they write.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.engine.graph.functional.auto_functionalize import auto_functionalized, has_no_functional_variant
from subclass_aot.engine.graph.messages import OUT_GROWS
from subclass_aot.errors import MutationError
from subclass_aot.meta.symbols import SizesMustBeKnown, is_symbolic

_aten = torch.ops.aten


def replay(graph: fx.Graph, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator on functional tensors.

    Args:
        graph: The graph that is recorded meanwhile.
        func: The operator as it was recorded.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if func is _aten.bernoulli_.float and not args[0].is_contiguous():
        # Eager draws in the order of memory. The form without mutation draws in the order of dims, so permute them.
        stride = args[0].stride()
        func(args[0].permute(sorted(range(len(stride)), key=lambda dim: -stride[dim])), *args[1:], **kwargs)
        return args[0]
    if has_no_functional_variant(func):
        return auto_functionalized(func, args, kwargs)
    targets = [argument_at(place, args, kwargs) for place in effects_of(func).writes]
    if not any(_may_lose_strides(func, target) for target in targets):
        return func(*args, **kwargs)
    stand_ins, clones = {}, []
    for target in targets:
        stand_ins[id(target)] = target, target.clone()
        clones.append(next(iter(reversed(graph.nodes))))
    result = func(
        *[stand_ins[id(a)][1] if id(a) in stand_ins else a for a in args],
        **{name: stand_ins[id(a)][1] if id(a) in stand_ins else a for name, a in kwargs.items()},
    )
    for target, value in stand_ins.values():
        if target.shape != value.shape:
            _resize(func, target, value, clones[0].meta["stack_trace"])
        target.copy_(value)  # takes the values of the one and keeps the strides of the other
    for clone in clones:  # nothing is written in this graph, so what the clone is of will do
        clone.replace_all_uses_with(clone.args[0], propagate_meta=False)
        graph.erase_node(clone)
    returned = {id(value): target for target, value in stand_ins.values()}
    if isinstance(result, tuple):
        return tuple(returned.get(id(r), r) for r in result)
    return returned.get(id(result), result)


def _resize(func: _torch.operators.Operator, target: torch.Tensor, value: torch.Tensor, stack_trace: str) -> None:
    """Resizes what an operator was given as `out=` to the result: it writes into the memory that was there."""
    size = value.shape
    sizes = {"before": list(target.shape), "after": list(size)}
    if any(map(is_symbolic, (*target.shape, *size))):  # torch's functionalization resizes to numbers only
        raise SizesMustBeKnown
    try:
        target.resize_(size)
        if target.stride() != value.stride():
            target.as_strided_(size, value.stride())
    except RuntimeError as error:
        if "symbolic sizes" in str(error):  # which were symbols when the tensor was made
            raise SizesMustBeKnown from error
        if "resize a view" not in str(error):
            raise
        line = " ".join(stack_trace.splitlines()[-2:]).strip()
        raise MutationError(OUT_GROWS.format(operator=func, line=line, **sizes)) from error


def _may_lose_strides(func: _torch.operators.Operator, target: object) -> bool:
    if (
        not isinstance(target, torch.Tensor)
        or _torch.symbolic.statically_known_true(target.numel() == 0)
        or func is _aten.copy_.default
    ):
        return False
    if torch.Tag.inplace_view in func.tags:
        return False
    if any(argument.is_out for argument in _torch.operators.schema_of(func).arguments):
        return True
    return torch.Tag.pointwise not in func.tags and not target.is_contiguous()
