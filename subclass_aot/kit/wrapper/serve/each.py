"""The fallback "each": an operator on a wrapper is that operator on every inner tensor.

For each operator and each combination of argument kinds, one straight-line function is generated and kept.
A random operator draws for every inner tensor in turn, in the order of the fields.
"""

from __future__ import annotations

from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.operators import Effects, effects_of
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.serve.plain import plain_handler
from subclass_aot.kit.wrapper.serve.planner import Plan, Planner, related


def each_handler(cls: type[Wrapper], func: AnyOperator) -> Plan:
    """Returns the operator `func` for wrappers of exactly `cls`, applied to every inner tensor.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        A function that is called as the operator is.
    """
    if not _torch.operators.is_overload(func):
        return lambda *args, **kwargs: _structured(cls, func, args, kwargs)
    effects = effects_of(func)
    plans: dict[Any, Plan] = {}
    simple = cls.__wrapper_declaration__.is_static and not effects.lists

    def handler(*args: Any, **kwargs: Any) -> Any:
        if simple:
            key = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else (*map(type, args),)
        else:
            key = (*[_kind(arg) for arg in args], *kwargs, *[_kind(arg) for arg in kwargs.values()])
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = _plan(cls, func, effects, args, kwargs)
        return plan(*args, **kwargs)

    def only_plan(*args: Any, **kwargs: Any) -> Any:
        plan = cls.__dict__["_handlers"][func] = _plan(cls, func, effects, args, kwargs)
        return plan(*args, **kwargs)

    # An operator whose one argument is the wrapper has one plan, which takes the handler's place.
    return only_plan if simple and len(effects.parameters) == 1 else handler


def _kind(value: Any) -> Any:
    """Returns the key of a plan: the type, and the inner names where they vary; for a list, the kinds in it."""
    kind = type(value)
    if kind is list or kind is tuple:
        return frozenset([_kind(element) for element in value])
    if hasattr(kind, "__wrapper_state__") and not kind.__wrapper_declaration__.is_static:
        return kind, tuple(value.__tensor_flatten__()[0])
    return kind


def _plan(cls: type[Wrapper], func: Operator, effects: Effects, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
    """Returns the function for arguments of these kinds."""
    on_lists = func.name().startswith(("aten::_foreach_", "aten::_fused_"))
    if on_lists and _mixed(cls, effects.bind(args, kwargs), effects):
        parts: dict[Any, Plan] = {}
        return lambda *args, **kwargs: _grouped(cls, func, effects, effects.bind(args, kwargs), parts)
    planner = Planner(cls, func, effects, args, kwargs)
    if planner.writes_to_dense() and hasattr(cls, "to_plain"):
        return plain_handler(cls, func)
    return planner.plan()


def _mixed(cls: type[Wrapper], bound: dict[str, Any], effects: Effects) -> bool:
    """Returns whether a list of this call holds wrappers beside something else, or wrappers of several layouts."""
    return any(len({_kind(element) for element in bound.get(name) or ()}) > 1 for name in effects.lists)


def _grouped(
    cls: type[Wrapper], func: Operator, effects: Effects, bound: dict[str, Any], parts: dict[Any, Plan]
) -> Any:
    """Returns an operator on lists: run apart on the positions without wrapper and on those with wrappers of each
    layout.
    """
    length = len(next(bound[name] for name in effects.parameters if name in effects.lists and bound.get(name)))
    lists = {name: v for name, v in bound.items() if isinstance(v, list | tuple) and len(v) == length}
    groups: dict[Any, list[int]] = {}
    for position in range(length):
        wrappers = [value[position] for value in lists.values() if related(cls, type(value[position]))]
        groups.setdefault(_kind(wrappers[0]) if wrappers else None, []).append(position)
    outputs: list[Any] = [None] * length
    for kind, positions in groups.items():
        part = {**bound, **{name: [value[i] for i in positions] for name, value in lists.items()}}
        key = (kind, *part, *map(_kind, part.values()))
        if key not in parts:
            parts[key] = func if kind is None else Planner(cls, func, effects, (), part).plan()
        for position, output in zip(positions, parts[key](**part) or [None] * len(positions), strict=True):
            outputs[position] = output
    return outputs if effects.returns else None


def _structured(cls: type[Wrapper], func: AnyOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator that takes functions and structures (`cond`, ...).

    It has no schema, so the structure is walked.
    """
    structure: Any = (args, kwargs)
    leaves, spec = optree.tree_flatten(structure, none_is_leaf=True)
    proto = next(leaf for leaf in leaves if isinstance(leaf, cls))
    names, context = proto.__tensor_flatten__()
    runs = []
    for name in names:
        inner = [getattr(leaf, name) if isinstance(leaf, cls) else leaf for leaf in leaves]
        inner_args, inner_kwargs = optree.tree_unflatten(spec, inner)
        runs.append(optree.tree_flatten(func(*inner_args, **inner_kwargs), none_is_leaf=True))
    outputs = []
    for parts in zip(*(flat for flat, _ in runs), strict=True):
        wraps = isinstance(parts[0], torch.Tensor)
        inner_tensors = dict(zip(names, parts, strict=True))
        outputs.append(cls.__tensor_unflatten__(inner_tensors, context) if wraps else parts[0])
    return optree.tree_unflatten(runs[0][1], outputs)
