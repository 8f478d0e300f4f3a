"""What a run without data takes values to be that nobody knows: checks pass, and masks are full."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot._stack import user_line
from subclass_aot._torch.operators import Operator
from subclass_aot.errors import TraceError
from subclass_aot.meta import strides
from subclass_aot.meta.by_leaf import ByLeaf, leaves_of
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.storage import Storage
from subclass_aot.meta.tensor import MetaTensor, new_leaf
from subclass_aot.operators import argument_at, effects_of

_aten = torch.ops.aten

MOST_TIMES = 1000
"""A line that reads a value so often is taken for a loop that waits for another one."""

_ENDLESS = """A line read a value {times} times, and each time it was assumed to be {answer!r}.
  A loop may wait for another one.
  Your line:  {line}
  Instead: say what it reads, as in sa.meta(assume={{{key!r}: {other}}})."""

Given = bool | Mapping[str, Any]


@dataclass
class Assumption:
    """A value that a run assumed.

    Attributes:
        line: Where the program reads it.
        what: What is read.
        answer: What it was assumed to be; of `nonzero`, how many elements are not zero.
        times: How often.
    """

    line: str
    what: str
    answer: Any
    times: int = 1

    def __str__(self) -> str:
        """Returns a line of a report."""
        often = "" if self.times == 1 else f", {self.times} times"
        return f"{self.what} is {self.answer!r}{often}: {self.line}"


class Assumptions:
    """Answers reads of values in a run without data, and lists the answers.

    Args:
        given: Whether values are assumed; or, by the end of a line's place (`"model.py:12"`), what is read there, with
            the values of other lines assumed.
        fraction: The part of the elements of a mask that are true, and of a tensor that are not zero.

    Raises:
        TypeError: `given` is something else.
        ValueError: `fraction` is no part of one.
    """

    def __init__(self, given: Given = False, fraction: float = 1.0) -> None:
        if not isinstance(given, bool | Mapping):
            raise TypeError(
                f"assume is {given!r}; it is True, False, or what lines read, as in {{'model.py:12': False}}"
            )
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction is {fraction}; it is a part of all elements, from 0 to 1")
        self.is_on = given is not False
        self._given = given if isinstance(given, Mapping) else {}
        self._fraction = fraction
        self._likely = ByLeaf()
        self._made: dict[tuple[str, str], Assumption] = {}

    def __iter__(self) -> Iterator[Assumption]:
        """Iterates over the assumptions, in the order in which they were made."""
        return iter(self._made.values())

    def __len__(self) -> int:
        """Returns how many different ones there are."""
        return len(self._made)

    def __str__(self) -> str:
        """Returns them, one in a line."""
        return "\n".join(map(str, self))

    def note(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        """Notes what the elements of a result are likely to be, if the operator says it.

        What is written is a mask again, of which nobody knows more.
        """
        written = {
            Storage.of(x) for x in leaves_of([argument_at(place, args, kwargs) for place in effects_of(func).writes])
        }
        if written:
            self._likely.forget(lambda leaf: Storage.of(leaf) in written)
        if type(result) is not MetaTensor:
            return
        rule = _RULES.get(func.overloadpacket)
        if rule is not None:
            likely = rule(self, result, *args)
            if likely is not None:
                self._likely.note(result, likely)

    def likely(self, value: object) -> Any:
        """Returns what each element of a tensor is likely to be; None if nobody knows. A mask is full."""
        if type(value) is not MetaTensor:
            return None
        noted = self._likely.of(value)
        return True if noted is None and value.dtype is torch.bool else noted

    def answer(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the assumed result of an operator that reads values; None if it is not assumed.

        Raises:
            TraceError: The same line has read it too often.
        """
        if not self.is_on or not args or type(args[0]) is not MetaTensor:
            return None
        leaf, packet = args[0], func.overloadpacket
        line = user_line()
        place = f"/{line.partition(': ')[0]}"
        given = next((value for key, value in self._given.items() if place.endswith(f"/{key}")), None)
        if packet is _aten._local_scalar_dense:
            answer = self.likely(leaf) if given is None else given
            what = f"a {'flag' if leaf.dtype is torch.bool else 'number'} ({str(leaf.dtype).removeprefix('torch.')})"
            return None if answer is None else self._noted(line, what, answer)
        counted = _SIZES_BY_DATA.get(packet)
        if counted is None:
            return None
        rows = self._part_of(leaf.numel()) if given is None else int(given)
        self._noted(line, f"how many of {leaf.numel()} elements {counted}", rows)
        if packet is _aten.nonzero:
            stride = (1, max(rows, 1)) if leaf.spec.device.type == "cpu" else (leaf.dim(), 1)
            return new_leaf(Spec.make((rows, leaf.dim()), stride, 0, torch.int64, leaf.spec.device))
        bound = effects_of(func).bind(args, kwargs)
        inverse = tuple(leaf.shape) if bound.get("return_inverse") else (0,)
        counts = (rows,) if bound.get("return_counts") else (0,)
        return tuple(
            new_leaf(Spec.make(size, strides.packed(size), 0, dtype, leaf.spec.device))
            for size, dtype in [((rows,), leaf.dtype), (inverse, torch.int64), (counts, torch.int64)]
        )

    def _part_of(self, elements: int) -> int:
        return math.ceil(self._fraction * elements)

    def _noted(self, line: str, what: str, answer: Any) -> Any:
        made = self._made.get((line, what))
        if made is None:
            self._made[line, what] = Assumption(line, what, answer)
            return answer
        made.times, made.answer = made.times + 1, answer
        if made.times >= MOST_TIMES:
            key = ":".join(line.split(": ")[0].rsplit("/", 1)[-1].split(":")[:2])
            other = repr(not answer) if isinstance(answer, bool) else "..."
            raise TraceError(_ENDLESS.format(times=made.times, answer=answer, line=line, key=key, other=other))
        return answer


_SIZES_BY_DATA = {
    _aten.nonzero: "are not zero",
    _aten._unique2: "differ from all others",
    _aten.unique_consecutive: "differ from the one before",
}
"""Operators whose results have sizes that depend on data, and what the elements that count do."""

_Rule = Callable[..., Any]


def _always(value: bool) -> _Rule:
    return lambda assumptions, result, *args: value


def _same(assumptions: Assumptions, result: MetaTensor, x: object, *args: object) -> Any:
    likely = assumptions.likely(x)
    return likely if likely is None or result.dtype is torch.bool else int(likely)


def _negated(assumptions: Assumptions, result: MetaTensor, x: object) -> Any:
    likely = assumptions.likely(x)
    return None if likely is None or result.dtype is not torch.bool else not likely


def _both(assumptions: Assumptions, result: MetaTensor, x: object, y: object) -> Any:
    found = assumptions.likely(x), assumptions.likely(y)
    return None if None in found or result.dtype is not torch.bool else all(found)


def _either(assumptions: Assumptions, result: MetaTensor, x: object, y: object) -> Any:
    found = assumptions.likely(x), assumptions.likely(y)
    return None if None in found or result.dtype is not torch.bool else any(found)


def _summed(assumptions: Assumptions, result: MetaTensor, x: Any, *args: object) -> int | None:
    if assumptions.likely(x) is None or not result.numel():
        return None
    return assumptions._part_of(x.numel() // result.numel())  # what is counted is a mask, comparisons too


_COMPARISONS = "eq ne lt le gt ge isnan isinf isneginf isposinf"
_COPIES = (
    "select slice view _unsafe_view reshape squeeze unsqueeze expand permute transpose t alias detach clone _to_copy "
    "max min amax amin"
)
_RULES: dict[Any, _Rule] = {
    **{getattr(_aten, name): _always(False) for name in _COMPARISONS.split()},
    **{getattr(_aten, name): _same for name in _COPIES.split()},
    _aten.all: _always(True),
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
}
"""What each element of a result is likely to be: a check holds, a comparison does not, and a mask is full."""
