"""Reads what an operator's schema says about aliasing and writing, once per operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch.fx.node import Target

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator

Kind = Literal["tensor", "list", "other"]
Argument = tuple[int, str]
"""The position and the name of one argument."""


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """The parameters and results of an operator, and its effects on its arguments.

    Attributes:
        parameters: For each parameter, in order, whether it is a tensor, a list of tensors, or something else.
        returns: The same for each return.
        writes: Arguments that are written.
        overwrites: The names of those whose values are not read first: `out=`, and what is filled, as by `zero_`.
        returns_written: Per return, the argument it is (as `add_` returns `self`), or None.
        returns_view_of: Per return, the argument it is a view of, or None.
        composite: The operator is made of others and has a decomposition of its own.
        pure: Nothing is written and nothing is aliased.
        data_dependent: The result's shape or a Python result depends on values.
        shape_by_data: The result's shape does.
        random: Draws from a generator.
        reshapes: Mutates the metadata of its first argument, and not its data, as `transpose_`; `resize_`
            may make room for more.
    """

    # More than ten attributes: each is the answer to one query about an operator.

    parameters: Mapping[str, Kind]
    returns: tuple[Kind, ...]
    writes: tuple[Argument, ...]
    overwrites: frozenset[str]
    returns_written: tuple[Argument | None, ...]
    returns_view_of: tuple[Argument | None, ...]
    composite: bool
    pure: bool
    data_dependent: bool
    shape_by_data: bool
    random: bool
    reshapes: bool

    @property
    def mutates(self) -> bool:
        """True if an argument is written."""
        return bool(self.writes)

    @property
    def lists(self) -> frozenset[str]:
        """The names of the parameters that are lists of tensors."""
        return frozenset(name for name, kind in self.parameters.items() if kind == "list")

    @property
    def written(self) -> frozenset[str]:
        """The names of the arguments that are written."""
        return frozenset(name for _, name in self.writes)

    @property
    def returned(self) -> tuple[str, ...]:
        """For each return, the name of the written argument that it is; empty where the returns are new."""
        return tuple(argument[1] for argument in self.returns_written if argument is not None)

    @property
    def viewed(self) -> str:
        """The name of the argument that the first return is a view of, or ""."""
        return next((argument[1] for argument in self.returns_view_of[:1] if argument is not None), "")

    def draws(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Returns whether a call draws random numbers. Attention may, and does not where its dropout is zero."""
        if not self.random or "dropout_p" not in self.parameters:
            return self.random
        return bool(self.bind(args, kwargs).get("dropout_p", 0.0))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call by parameter name."""
        return {**dict(zip(self.parameters, args, strict=False)), **kwargs}


def effects_of(func: Target) -> Effects:
    """Returns the effects of an operator, from its schema; `func` may be what a node of a graph calls.

    >>> effects_of(torch.ops.aten.add_.Tensor).returns_written
    ((0, 'self'),)
    >>> effects_of(torch.ops.aten.t.default).returns_view_of
    ((0, 'self'),)
    """
    found = _effects.get(id(func))  # an operator has its hash in Python
    if found is None:
        assert isinstance(func, Operator)
        found = _effects[id(func)] = _read_schema(func)
        _held.append(func)  # so that its `id` stays its own
    return found


def note_shape_by_data(func: Operator) -> None:
    """Notes that the shape of what an operator gives depends on values, which neither its schema nor a tag says."""
    _effects[id(func)] = dataclasses.replace(effects_of(func), data_dependent=True, shape_by_data=True)


def argument_at(argument: Argument, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns the value an operator call gave to `argument`, or None if it was left out."""
    position, name = argument
    return args[position] if position < len(args) else kwargs.get(name)


@cache
def without_out(func: Operator) -> Operator | None:
    """Returns the overload that returns what this one writes into `out=`, or None if there is none.

    >>> without_out(torch.ops.aten.add.out)
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    arguments = _torch.operators.schema_of(func).arguments
    wanted = [(a.name, str(a.type)) for a in arguments if not a.is_out]
    return None if len(wanted) == len(arguments) else _pure_overload(func.overloadpacket, wanted)


@cache
def out_of_place(func: Operator) -> Operator | None:
    """Returns the overload that returns what this one writes into its first argument, or None if there is none.

    >>> out_of_place(torch.ops.aten.lerp_.Scalar)
    <OpOverload(op='aten.lerp', overload='Scalar')>
    """
    name = func.overloadpacket.__name__
    packet = getattr(getattr(torch.ops, func.namespace), name.removesuffix("_"), None)
    arguments = _torch.operators.schema_of(func).arguments
    if packet is None or not name.endswith("_") or effects_of(func).returned != (arguments[0].name,):
        return None
    return _pure_overload(packet, [(a.name, str(a.type)) for a in arguments])


def _pure_overload(packet: _torch.operators.OperatorPacket, wanted: list[tuple[str, str]]) -> Operator | None:
    """Returns the overload that takes these arguments and writes none of them."""
    for name in packet.overloads():
        func: Operator = getattr(packet, name)
        taken = [(a.name, str(a.type)) for a in _torch.operators.schema_of(func).arguments]
        if taken == wanted and not effects_of(func).writes:
            return func
    return None


def _read_schema(func: Operator) -> Effects:
    schema = _torch.operators.schema_of(func)
    written: dict[str, Argument] = {}
    read: dict[str, Argument] = {}
    writes = []
    for i, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is None:
            continue
        if info.is_write:
            writes.append((i, argument.name))
        for symbol in info.before_set:
            (written if info.is_write else read)[symbol] = (i, argument.name)

    def look_up(table: dict[str, Argument], value: _torch.operators.SchemaArgument) -> Argument | None:
        info = value.alias_info
        if info is None:
            return None
        if not info.before_set and not info.is_write:  # `Tensor(a)[]`, as `unbind` has it: torch drops the symbol
            return next(iter(table.values()), None)
        return next((table[s] for s in info.before_set if s in table), None)

    returns_written = tuple(look_up(written, value) for value in schema.returns)
    returns_view_of = tuple(look_up(read, value) for value in schema.returns)
    tags = set(func.tags)
    return Effects(
        parameters={a.name: _KINDS.get(str(a.type), "other") for a in schema.arguments},
        returns=tuple(_KINDS.get(str(r.type), "other") for r in schema.returns),
        writes=tuple(writes),
        overwrites=frozenset(
            name for i, name in writes if schema.arguments[i].is_out or func.overloadpacket in _FILLING
        ),
        returns_written=returns_written,
        returns_view_of=returns_view_of,
        composite=_torch.operators.has_composite_implicit_kernel(func),
        pure=not writes and not any(returns_view_of),
        data_dependent=torch.Tag.data_dependent_output in tags or _torch.operators.has_shape_by_data(func),
        shape_by_data=_torch.operators.has_shape_by_data(func),
        random=torch.Tag.nondeterministic_seeded in tags,
        reshapes=torch.Tag.inplace_view in tags and func.overloadpacket is not _aten.set_,
    )


_aten = torch.ops.aten
_FILLING = frozenset(
    getattr(_aten, f"{name}_")
    for name in """
    fill zero copy _foreach_zero _foreach_copy
    bernoulli uniform normal exponential geometric log_normal cauchy random
    """.split()
)
"""Operators that give their first argument new values, whatever it had. No schema says so."""
PHYSICAL: Mapping[Operator, Operator] = {
    _aten._conj.default: _aten._conj_physical.default,
    _aten._neg_view.default: _aten.neg.default,
}
"""Views that only set a bit, which a tensor without data cannot carry, and an inner tensor must not: these copy."""

_KINDS: Mapping[str, Kind] = {
    "Tensor": "tensor",
    "Optional[Tensor]": "tensor",
    "List[Tensor]": "list",
    "List[Optional[Tensor]]": "list",
}
_effects: dict[int, Effects] = {}
_held: list[Operator] = []
