"""What an operator's schema says about aliasing and writing, read once per operator."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from subclass_aot import _torch


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """What an operator does to its arguments.

    Attributes:
        writes: Arguments that are written, each as (position, name).
        returns_written: Per return, the argument it is (as `add_` returns `self`), or None.
        returns_view_of: Per return, the argument it is a view of, or None.
        composite: The operator is made of others and has a decomposition of its own.
        pure: Nothing is written and nothing is aliased.
        data_dependent: The result's shape or a Python result depends on values.
        random: Draws from a generator.
        reshapes: Changes what its first argument looks like from outside, and not its data, as `transpose_`.
    """

    writes: tuple[tuple[int, str], ...]
    returns_written: tuple[tuple[int, str] | None, ...]
    returns_view_of: tuple[tuple[int, str] | None, ...]
    composite: bool
    pure: bool
    data_dependent: bool
    random: bool
    reshapes: bool

    @property
    def mutates(self) -> bool:
        """True if an argument is written."""
        return bool(self.writes)


def effects_of(func: Any) -> Effects:
    """The effects of an operator, from its schema.

    >>> effects_of(torch.ops.aten.add_.Tensor).returns_written
    ((0, 'self'),)
    >>> effects_of(torch.ops.aten.t.default).returns_view_of
    ((0, 'self'),)
    """
    found = _effects.get(func)
    if found is None:
        found = _effects[func] = _read_schema(func)
    return found


def argument_at(argument: tuple[int, str], args: Any, kwargs: Any) -> Any:
    """The value an operator call gave to `argument`, or None if it was left out."""
    position, name = argument
    return args[position] if position < len(args) else kwargs.get(name)


@cache
def without_out(func: Any) -> Any:
    """The overload that returns what this one writes into `out=`, or None if there is none.

    >>> without_out(torch.ops.aten.add.out)
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    arguments = _torch.schema_of(func).arguments
    wanted = [(a.name, str(a.type)) for a in arguments if not a.is_out]
    if len(wanted) == len(arguments):
        return None
    for name in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, name)
        taken = [(a.name, str(a.type)) for a in _torch.schema_of(other).arguments]
        if taken == wanted and not effects_of(other).writes:
            return other
    return None


def _read_schema(func: Any) -> Effects:
    if func in _ASK_FOR_SIZES:
        raise SizesMustBeKnown
    schema = _torch.schema_of(func)
    written: dict[str, tuple[int, str]] = {}
    read: dict[str, tuple[int, str]] = {}
    writes = []
    for i, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is None:
            continue
        if info.is_write:
            writes.append((i, argument.name))
        for symbol in info.before_set:
            (written if info.is_write else read)[symbol] = (i, argument.name)

    def look_up(table: dict[str, tuple[int, str]], info: Any) -> tuple[int, str] | None:
        if info is None:
            return None
        if not info.before_set and not info.is_write:  # `Tensor(a)[]`, as `unbind` has it: torch drops the symbol
            return next(iter(table.values()), None)
        return next((table[s] for s in info.before_set if s in table), None)

    infos = [r.alias_info for r in schema.returns]
    returns_written = tuple(look_up(written, info) for info in infos)
    returns_view_of = tuple(look_up(read, info) for info in infos)
    tags = set(func.tags)
    return Effects(
        writes=tuple(writes),
        returns_written=returns_written,
        returns_view_of=returns_view_of,
        composite=_torch.has_composite_implicit_kernel(func),
        pure=not writes and not any(returns_view_of),
        data_dependent=torch.Tag.data_dependent_output in tags or _torch.has_shape_by_data(func),
        random=torch.Tag.nondeterministic_seeded in tags,
        reshapes=torch.Tag.inplace_view in tags and func.overloadpacket not in _CHANGE_STORAGE,
    )


class SizesMustBeKnown(Exception):
    """Raised in a trace that cannot go on with symbolic sizes: it can with known ones.

    Args:
        paths: The inputs whose sizes must be known; none for all of them.
    """

    def __init__(self, paths: Collection[str] = ()) -> None:
        super().__init__(paths)
        self.paths = paths


_ASK_FOR_SIZES = frozenset({torch.ops.aten.size.default, torch.ops.aten.stride.default})
"""What torch calls where a formula in C++ wants plain numbers, and a tensor has symbolic ones."""

_CHANGE_STORAGE = frozenset({torch.ops.aten.set_, torch.ops.aten.resize_, torch.ops.aten.resize_as_})
_effects: dict[Any, Effects] = {}
