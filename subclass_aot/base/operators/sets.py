"""Sets of operators, defined by schema and tags, so that they hold those that are registered later, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator, OperatorPacket
from subclass_aot.base.operators.kinds import OperatorKind, kind_of


@dataclass(frozen=True, slots=True)
class OperatorSet:
    """The operators of some kinds, but for some.

    `in` checks one overload, iteration gives those that are registered now, `|` unites two sets, and `-` leaves
    operators out: `ops.pointwise - {torch.ops.aten.where}` is without every overload of `where`.

    Args:
        kinds: Of which kinds.
        without: Operators of these kinds that are left out.
    """

    kinds: frozenset[OperatorKind]
    without: frozenset[Operator] = frozenset()

    @property
    def description(self) -> str:
        """What the operators have in common."""
        return "; or ".join(kind.value for kind in OperatorKind if kind in self.kinds)

    def __contains__(self, func: object) -> bool:
        if _torch.operators.is_packet(func):
            raise TypeError(f"{func} has overloads, each of its own kind: ask for one, such as {_first(func)}")
        return _torch.operators.is_overload(func) and kind_of(func) in self.kinds and func not in self.without

    def __iter__(self) -> Iterator[Operator]:
        return (func for func in _torch.operators.registered_operators() if func in self)

    def __or__(self, other: OperatorSet) -> OperatorSet:
        if not isinstance(other, OperatorSet):
            return NotImplemented
        missing = {func for func in self.without | other.without if func not in self and func not in other}
        return OperatorSet(self.kinds | other.kinds, frozenset(missing))

    def __sub__(self, operators: Iterable[Operator | OperatorPacket]) -> OperatorSet:
        if isinstance(operators, OperatorSet):  # which would have to be listed, and would miss what comes later
            return NotImplemented
        missing = {func for operator in operators for func in _overloads(operator) if func in self}
        return OperatorSet(self.kinds, self.without | missing)

    def __le__(self, other: OperatorSet) -> bool:
        """Returns whether each operator of this set, also of those to come, is in the other one."""
        return self.kinds <= other.kinds and not any(func in self for func in other.without)

    def shares(self, other: OperatorSet) -> bool:
        """Returns whether the two have operators in common."""
        return not self.kinds.isdisjoint(other.kinds)

    def __repr__(self) -> str:
        kinds = " | ".join(f"ops.{kind.name.lower()}" for kind in OperatorKind if kind in self.kinds)
        if not self.without:
            return kinds
        missing = ", ".join(sorted(map(str, self.without)))
        return f"{f'({kinds})' if len(self.kinds) > 1 else kinds} - {{{missing}}}"


def _overloads(operator: object) -> list[Operator]:
    if _torch.operators.is_packet(operator):
        return [getattr(operator, name) for name in operator.overloads()]
    if not _torch.operators.is_overload(operator):
        raise TypeError(f"{operator!r} is no operator: leave out overloads or packets, such as torch.ops.aten.where")
    return [operator]


def _first(packet: OperatorPacket) -> str:
    return f"{packet}.{packet.overloads()[0]}"
