"""What the elements of a tensor are likely to be, in a run without data: checks hold, comparisons do not, masks are
full, and positions are the first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.cost.without_data.by_leaf import ByLeaf, leaves_of
from subclass_aot.cost.without_data.rows import same_everywhere
from subclass_aot.meta import MetaTensor

_aten = torch.ops.aten

_SMALL = 1e-6
"""A number is likely to be larger than a positive one that is no larger than this: such guard divisions."""


_ABSENT = 1e8
"""Any number is likely to be larger than the negative of this or of more, by which programs mean that there is none."""


class Position(int):
    """A position in a tensor, which no sum counts."""


class NotYet(int):
    """False of a flag that a loop gathers, `done |= tokens == end`: all of such are not true, either."""


_NOT_YET = NotYet(0)


class Likely:
    """What the elements of the leaves of a run are likely to be.

    Args:
        fraction: The part of the elements of a mask that are true, and of a tensor that are not zero.

    Attributes:
        constant: Returns the values of a leaf, or None; what is known is not only likely.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._noted = ByLeaf()
        self.constant: Callable[[MetaTensor], torch.Tensor | None] = lambda leaf: None

    def note(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Notes what the elements of a result are likely to be, if the operator says it.

        What is written is a mask again, of which nobody knows more.
        """
        packet = func.overloadpacket
        for place in effects_of(func).writes:
            self._noted.forget(leaves_of(argument_at(place, args, kwargs)))
        if packet in _UNSCALING:  # gradients are finite
            self._note(args[1], 0.0)
        elif type(result) is MetaTensor:
            rule = _RULES.get(packet)
            self._note(result, None if rule is None else rule(self, result, *args))
        elif type(result) in (tuple, list) and result and type(result[0]) is MetaTensor:
            if packet in _SELECTING:
                self._note(result[0], _same(self, result[0], *args))
                if packet not in _DIFFERENT:
                    self._note(result[1], Position(0))
            elif packet in _PARTS:
                for part in result:
                    self._note(part, _same(self, part, *args))

    def _note(self, leaf: MetaTensor, likely: object) -> None:
        if likely is not None:
            self._noted.note(leaf, likely)

    def of(self, value: object) -> Any:
        """Returns what each element of a tensor is likely to be; None if nobody knows. A mask is full."""
        if type(value) is not MetaTensor:
            return None
        constant = self.constant(value)
        if constant is not None:
            return same_everywhere(constant)
        noted = self._noted.of(value)
        return True if noted is None and value.dtype is torch.bool else noted

    def is_constant(self, value: object) -> bool:
        """Returns whether the values of a tensor are known."""
        return type(value) is MetaTensor and self.constant(value) is not None

    def part_of(self, elements: int) -> int:
        """Returns how many elements of a mask are true."""
        return math.ceil(self._fraction * elements)


_Rule = Callable[..., Any]


def _always(value: object) -> _Rule:
    return lambda all, result, *args: value


def _same(all: Likely, result: MetaTensor, x: object, *args: object) -> Any:
    likely = all.of(x)
    if likely is None or isinstance(likely, NotYet):
        return likely
    if result.dtype is torch.bool:
        return bool(likely)
    if isinstance(likely, bool):
        return float(likely) if result.dtype.is_floating_point else int(likely)
    return None if isinstance(likely, Position) and result.dtype.is_floating_point else likely


def _larger(all: Likely, result: MetaTensor, x: object, y: object) -> bool:
    number = all.of(y) if type(y) is MetaTensor else y
    is_number = isinstance(number, int | float) and not isinstance(number, bool | Position)
    return is_number and (0 < number <= _SMALL or number <= -_ABSENT)  # type: ignore[operator]


def _chosen(all: Likely, result: MetaTensor, condition: object, x: object = None, y: object = None) -> Any:
    likely = all.of(condition)
    chosen = x if likely else y
    return None if likely is None else all.of(chosen) if type(chosen) is MetaTensor else chosen


def _negated(all: Likely, result: MetaTensor, x: object) -> Any:
    likely = all.of(x)
    return None if likely is None or result.dtype is not torch.bool else not likely


def _both(all: Likely, result: MetaTensor, x: object, y: object) -> Any:
    found = all.of(x), all.of(y)
    return _of_both(result, *found, min, any(isinstance(value, NotYet) for value in found))


def _either(all: Likely, result: MetaTensor, x: object, y: object) -> Any:
    is_gathered = any(all.is_constant(value) or isinstance(all.of(value), NotYet) for value in (x, y))
    return _of_both(result, all.of(x), all.of(y), max, is_gathered)


def _of_both(result: MetaTensor, x: Any, y: Any, of: Callable[[Any, Any], Any], is_gathered: bool) -> Any:
    if result.dtype is not torch.bool:
        return None
    decides = of(False, True)  # one flag that is so decides, whatever the other is
    if x is None or y is None:
        known = [value for value in (x, y) if value is not None and bool(value) == decides]
        return None if not known else _NOT_YET if isinstance(known[0], NotYet) else decides
    return _NOT_YET if is_gathered and not of(x, y) else bool(of(x, y))


def _all(all: Likely, result: MetaTensor, x: object, *args: object) -> Any:
    return all.of(x) if isinstance(all.of(x), NotYet) else True


def _summed(all: Likely, result: MetaTensor, x: Any, *args: object) -> int | None:
    likely = all.of(x)
    if likely is None or isinstance(likely, Position) or not result.numel():
        return None
    return all.part_of(x.numel() // result.numel())  # what is counted is a mask, comparisons too


def _shifted(by: Callable[[Any, Any], Any]) -> _Rule:
    """Makes the rule of a number of elements that Python numbers are added to, as the length of a prompt."""

    def rule(all: Likely, result: MetaTensor, x: object, y: object, *args: object) -> Any:
        parts = [all.of(value) if type(value) is MetaTensor else value for value in (x, y)]
        is_count = {type(part) for part in parts} == {int} and not result.dtype.is_floating_point
        return by(*parts) if is_count else None

    return rule


def _joined(all: Likely, result: MetaTensor, parts: Any, *args: object) -> Any:
    found = [_same(all, result, part) for part in parts]
    gathered = next((value for value in found if isinstance(value, NotYet)), None)
    return (found[0] if gathered is None else gathered) if found and all_same(found) else None


def all_same(values: list[Any]) -> bool:
    """Returns whether values are all the same."""
    return all(value == values[0] for value in values)


_COMPARISONS = "eq ne lt le ge isin isnan isinf isneginf isposinf"
_COPIES = (
    "select slice view _unsafe_view reshape squeeze unsqueeze expand permute transpose t alias detach clone _to_copy "
    "max min amax amin index index_select gather take masked_select floor_divide remainder _unsafe_index flip roll"
)
_FIRST = "argmax argmin argsort multinomial searchsorted bucketize nonzero repeat_interleave"
_RULES: dict[Any, _Rule] = {
    **{getattr(_aten, name): _always(False) for name in _COMPARISONS.split()},
    **{getattr(_aten, name): _same for name in _COPIES.split()},
    **{getattr(_aten, name): _always(Position(0)) for name in _FIRST.split()},
    _aten.gt: _larger,
    _aten.where: _chosen,
    _aten.all: _all,
    _aten.isfinite: _always(True),
    _aten.isclose: _always(True),
    _aten.any: _same,
    _aten.logical_not: _negated,
    _aten.bitwise_not: _negated,
    _aten.logical_and: _both,
    _aten.bitwise_and: _both,
    _aten.logical_or: _either,
    _aten.bitwise_or: _either,
    _aten.sum: _summed,
    _aten.count_nonzero: _summed,
    _aten.add: _shifted(operator.add),
    _aten.sub: _shifted(operator.sub),
    _aten.cat: _joined,
    _aten.stack: _joined,
}
"""What each element of a result is likely to be."""
_DIFFERENT = frozenset(getattr(_aten, name) for name in "_unique2 unique_consecutive unique_dim".split())
_SELECTING = _DIFFERENT | frozenset(
    getattr(_aten, name) for name in "topk sort max min kthvalue median mode cummax cummin".split()
)
"""Operators that return elements, and where they were, but for `_DIFFERENT`."""
_PARTS = frozenset(getattr(_aten, name) for name in "unbind split split_with_sizes chunk tensor_split".split())
_UNSCALING = frozenset({_aten._amp_foreach_non_finite_check_and_unscale_})
