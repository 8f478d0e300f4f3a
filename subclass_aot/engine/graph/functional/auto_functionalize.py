"""Operators that write their arguments, and of which torch has no functional variant that goes without data.

`functionalize` knows the functional variants of most of torch's own operators, and of none that users and libraries
define (`torch.library.custom_op(..., mutates_args=...)`). AOTAutograd wraps these in the higher-order operator
`auto_functionalized`, which its compilers know. Here a functional variant is defined, an operator like any other, that
any compiler takes: it copies what is written, runs the one that writes on the copies, and returns these after its
results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.operators import ORIGINALS, argument_at, effects_of
from subclass_aot.meta import call_on_meta, register_meta

_aten = torch.ops.aten
Place = tuple[int, str]
"""An argument of an operator: its position and its name."""


def has_no_functional_variant(func: _torch.operators.Operator) -> bool:
    """Returns whether an operator writes, and torch has no functional variant of it, or none for tensors without
    data.
    """
    if not effects_of(func).writes:
        return False
    fused = _torch.operators.schema_of(func).name.startswith("aten::_fused_")
    return fused or func in _READ_SCALARS or func.namespace not in _OF_TORCH


def auto_functionalized(func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs such an operator by its functional variant, and writes what that returns.

    Args:
        func: The operator.
        args: Its arguments, functional tensors.
        kwargs: Its keyword arguments.
    """
    written = tuple(place for place in effects_of(func).writes if argument_at(place, args, kwargs) is not None)
    targets = [argument_at(place, args, kwargs) for place in written]
    places = [(i, a.name) for i, a in enumerate(_torch.operators.schema_of(func).arguments)]
    same = tuple(  # the same tensor, given a second time to be read
        (place, written[i])
        for place in places
        if place not in written
        for i, target in enumerate(targets)
        if argument_at(place, args, kwargs) is target
    )
    found = _as_tuple(_functional_variant(func, written, same)(*args, **kwargs))
    count = len(found) - len(targets)
    for target, value in zip(targets, found[count:], strict=True):
        for to, new in zip(listed(target), listed(value), strict=True):
            to.copy_(new)
    return found[0] if count == 1 else found[:count] or None


def _functional_variant(
    func: _torch.operators.Operator, written: tuple[Place, ...], same: tuple[tuple[Place, Place], ...]
) -> Any:
    """Returns the functional variant.

    Args:
        func: The operator.
        written: Its arguments that are written, less those that are left out.
        same: Arguments that are the same tensor as one of these.
    """
    variant = _variants.get((func, written, same))
    if variant is None:
        variant = _variants[func, written, same] = _defined(func, written, same)
    if _torch.side_effects.has_side_effect(func) and not _torch.side_effects.has_effect(variant):
        _torch.side_effects.note_side_effect(variant)
    return variant


def _defined(func: _torch.operators.Operator, written: tuple[Place, ...], same: tuple[tuple[Place, Place], ...]) -> Any:
    """Defines the functional variant."""
    parts = [
        func.namespace,
        _torch.operators.schema_of(func).name.split("::")[1],
        _torch.operators.overload_name_of(func) or "default",
    ]
    parts += [name for _, name in written] + [f"{one[1]}_is_{other[1]}" for one, other in same]
    name = "__".join(parts)

    def run(*args: object, **kwargs: object) -> Any:
        return _on_copies(func, written, same, args, kwargs)

    def fake(*args: object, **kwargs: object) -> Any:
        return _on_copies(_write_nothing if func in _READ_SCALARS else func, written, same, args, kwargs)

    def shapes(*args: object, **kwargs: object) -> Any:
        return _on_copies(lambda *a, **k: call_on_meta(func, a, k), written, same, args, kwargs)

    _library.define(f"{name}{_schema_without_writes(func, written)}")
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"subclass_aot::{name}", fake, lib=_library)
    variant = getattr(torch.ops.subclass_aot, name).default
    if not same and not _torch.operators.schema_of(func).returns:
        ORIGINALS.note(variant, func, written)
    if not effects_of(func).shape_by_data:  # else its fake kernel gives it, which runs the operator's own
        register_meta(variant)(shapes)
    return variant


def _on_copies(
    call: Callable[..., object],
    written: tuple[Place, ...],
    same: tuple[tuple[Place, Place], ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Returns what `call` returns, and then the copies that it was given in place of what is written."""
    given, named = list(args), dict(kwargs)
    copies: dict[Place, Any] = {}
    for place in written:
        value = argument_at(place, args, kwargs)
        copies[place] = [x.clone() for x in value] if isinstance(value, list | tuple) else value.clone()
    for place, copy in [*copies.items(), *[(one, copies[other]) for one, other in same]]:
        position, name = place
        if position < len(given):
            given[position] = copy
        else:
            named[name] = copy
    found = (*_as_tuple(call(*given, **named)), *copies.values())
    return found[0] if len(found) == 1 else found


def _write_nothing(*args: object, **kwargs: object) -> None:
    """Does nothing, in place of an operator that gives nothing, and whose kernel without data reads values."""


def _schema_without_writes(func: _torch.operators.Operator, written: tuple[Place, ...]) -> str:
    schema = _torch.operators.schema_of(func)
    arguments, returns = re.sub(r"\(\w+!?\)", "", str(schema)).split("(", 1)[1].rsplit(") -> ", 1)
    kinds = [str(schema.arguments[position].type) for position, _ in written]
    values = ["Tensor[]" if "List" in kind else "Tensor" for kind in kinds]
    return f"({arguments}) -> ({', '.join([*filter(None, [returns.strip('()')]), *values])})"


def is_whole(func: _torch.operators.Operator, place: Place) -> bool:
    """Returns whether an argument is no list."""
    return "List" not in str(_torch.operators.schema_of(func).arguments[place[0]].type)


def listed(value: object) -> Sequence[Any]:
    """Returns the parts of an argument: of a list, or the argument itself."""
    return value if isinstance(value, list | tuple) else (value,)


def _as_tuple(result: object) -> tuple[Any, ...]:
    return () if result is None else result if isinstance(result, tuple) else (result,)


_OF_TORCH = ("aten", "prims", "prim", "quantized", "_c10d_functional", "c10d", "c10d_functional", "inductor")
_READ_SCALARS = (_aten._foreach_addcdiv_.Tensor, _aten._foreach_addcmul_.Tensor)
_library = torch.library.Library("subclass_aot", "FRAGMENT")
_variants: dict[Any, Any] = {}
