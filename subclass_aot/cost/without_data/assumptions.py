"""What a run without data takes values to be that nobody knows, and the list of all that it did so."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.cost.without_data.likely import Likely
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.meta import MetaTensor, Spec, new_leaf, strides

_aten = torch.ops.aten

_NUMBER = re.compile(r"\d+ ?")

MOST_TIMES = 1000
"""A line that reads a value so often is taken for a loop that waits for another one."""
SOME_TIMES = 50
"""So is one that reads it so often in `MOST_SECONDS`: a loop may run a whole model each time."""
MOST_SECONDS = 30.0

_ENDLESS = """A line read {what} {times} times in {seconds:.0f} seconds, and each time it was assumed to be {answer!r}.
  A loop may wait for another one.
  Your line:  {line}
  Instead: say what it reads, as in sa.meta(assume={{{key!r}: {other}}})."""

_UNKNOWN = """{who} asks for values, and in a run without data nobody knows them{first}.
  Your line:  {line}
  It reads:   {what}
  Instead: say what it is, with assume={{{key!r}: ...}}{likely}.
  Values that follow from constants are known, and those of small tensors of integers that are passed to sa.profile."""

_LIKELY = ", or have it assumed, with assume=True"
_FIRST = "; with assume=True they are assumed, and listed"

Given = bool | Mapping[str, Any]


@dataclass
class Assumption:
    """A value that a run assumed.

    Attributes:
        line: Where the program reads it.
        what: What is read.
        answer: What it was assumed to be at first; of `nonzero`, how many elements are not zero.
        times: How often.
        last: What was read last, and what it was assumed to be.
        in_a_row: How often that was read, since something else was.
        since: When that began, in seconds of `time.monotonic`.
    """

    line: str
    what: str
    answer: Any
    times: int = 1
    last: tuple[str, Any] = ("", None)
    in_a_row: int = 1
    since: float = field(default_factory=time.monotonic, compare=False)

    def __str__(self) -> str:
        """Returns a line of a report."""
        often = "" if self.times == 1 else f", {self.times} times"
        if self.last[1] != self.answer:
            often += f", {self.last[1]!r} at last"
        return f"{self.what} is {self.answer!r}{often}: {self.line}"


class Assumptions:
    """Answers reads of values in a run without data, and lists the answers.

    Args:
        given: Whether values are assumed; or, by the end of a line's place (`"model.py:12"`), what is read there, with
            the values of other lines assumed. The line is one that runs, or that called it.
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
        self._likely = Likely(fraction)
        self._made: dict[tuple[str, str], Assumption] = {}
        self.note = self._likely.note

    def with_constants(self, constant: Callable[[MetaTensor], torch.Tensor | None]) -> Assumptions:
        """Has what is known go before what is likely.

        Args:
            constant: Returns the values of a leaf, or None.

        Returns:
            The same assumptions.
        """
        self._likely.constant = constant
        return self

    def __iter__(self) -> Iterator[Assumption]:
        """Iterates over the assumptions, in the order in which they were made."""
        return iter(self._made.values())

    def __len__(self) -> int:
        """Returns how many different ones there are."""
        return len(self._made)

    def __str__(self) -> str:
        """Returns them, one in a line."""
        return "\n".join(map(str, self))

    def answer(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the assumed result of an operator that reads values; None if it is not assumed.

        A real tensor in it has values that are known from now on.

        Raises:
            TraceError: The same line has read it too often.
        """
        rule = _ANSWERS.get(func.overloadpacket)
        if not self.is_on or rule is None or not args or type(args[0]) is not MetaTensor:
            return None
        result = rule(self, args[0], effects_of(func).bind(args, kwargs))
        self.note(func, args, kwargs, result)
        return result

    def lengths(self, tensor: torch.Tensor, most: int) -> torch.Tensor | None:
        """Returns the assumed values of a tensor of lengths of `most` at the most; None if they are not assumed."""
        if not self.is_on:
            return None
        count = self._count(f"each of {tensor.numel()} lengths", max(self._likely.part_of(most), 1))
        return _constant(count, tensor, torch.int64)

    def elements(self, leaf: MetaTensor) -> torch.Tensor:
        """Returns the assumed values of a tensor that a program reads as a whole.

        Raises:
            DataDependentError: They are not assumed.
        """
        what = _kind_of(leaf) if not leaf.dim() else f"each of {leaf.numel()} elements of {leaf!r}"
        value = self._read(leaf, what) if self.is_on else None
        if value is None:
            raise self.refusal("The program", what)
        return _constant(value, leaf, leaf.dtype)

    def refusal_of(self, func: Operator, args: tuple[Any, ...]) -> DataDependentError:
        """Returns the error for an operator that reads values that nobody knows."""
        packet = func.overloadpacket
        what = _NEEDED.get(packet, f"what {packet.__name__} needs")
        if args and isinstance(args[0], torch.Tensor):
            if packet is _aten._local_scalar_dense:
                what = _kind_of(args[0])
            elif packet in _COUNTED:
                what = f"how many of {args[0].numel()} elements {_COUNTED[packet]}"
        return self.refusal(str(func), what)

    def refusal(self, who: str, what: str) -> DataDependentError:
        """Returns the error for a read of values that nobody knows."""
        line = user_line()
        first, likely = ("", "") if self.is_on else (_FIRST, _LIKELY)
        return DataDependentError(
            _UNKNOWN.format(who=who, first=first, line=line, what=what, key=_key(line), likely=likely)
        )

    def _read(self, leaf: MetaTensor, what: str) -> Any:
        """Returns the assumed value of a number, or of each of many; None if nobody knows it.

        A number that nobody knows is smaller each time that a line reads it, and larger than one.
        """
        line = user_line()
        answer = self._given_at(line)
        answer = self._likely.of(leaf) if answer is None else answer
        if answer is None and leaf.dtype.is_floating_point:
            before = self._made.get((line, _NUMBER.sub("", what)))
            answer = 1 + 1 / (1 if before is None else before.times + 1)
        return None if answer is None else self._noted(line, what, answer)

    def _count(self, what: str, likely: Any) -> Any:
        """Returns how many there are; None if nobody knows it."""
        line = user_line()
        given = self._given_at(line)
        given = likely if given is None else given
        return None if given is None else self._noted(line, what, given)

    def _given_at(self, line: str) -> Any:
        """Returns what is said to be read by a line, or by one that has called it or was called by it."""
        if not self._given:
            return None
        places = [f"/{line.partition(': ')[0]}"]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            places.append(f"/{frame.f_code.co_filename}:{frame.f_lineno}")
            frame = frame.f_back
        found = (value for place in places for key, value in self._given.items() if place.endswith(f"/{key}"))
        return next(found, None)

    def _noted(self, line: str, what: str, answer: Any) -> Any:
        kind = _NUMBER.sub("", what)
        made = self._made.get((line, kind))
        if made is None:
            self._made[line, kind] = Assumption(line, what, answer, last=(what, answer))
            return answer
        if made.last[0] == what:
            made.in_a_row += 1
        else:
            made.in_a_row, made.since = 1, time.monotonic()
        made.times, made.last = made.times + 1, (what, answer)
        seconds = time.monotonic() - made.since
        if made.in_a_row >= MOST_TIMES or made.in_a_row >= SOME_TIMES and seconds > MOST_SECONDS:
            other = repr(not answer) if isinstance(answer, bool) else "..."
            raise TraceError(
                _ENDLESS.format(
                    what=what, times=made.in_a_row, seconds=seconds, answer=answer, line=line, key=_key(line),
                    other=other,
                )
            )  # fmt: skip
        return answer

    def _item(self, leaf: MetaTensor, bound: Mapping[str, Any]) -> Any:
        value = self._read(leaf, _kind_of(leaf))
        if value is None:
            return None
        return bool(value) if leaf.dtype is torch.bool else float(value) if leaf.is_floating_point() else int(value)

    def _nonzero(self, leaf: MetaTensor, bound: Mapping[str, Any]) -> Any:
        return positions(leaf, int(self._rows(leaf, _aten.nonzero)))

    def _unique(self, leaf: MetaTensor, bound: Mapping[str, Any]) -> Any:
        rows = int(self._rows(leaf, _aten._unique2))
        inverse = tuple(leaf.shape) if bound.get("return_inverse") else (0,)
        counts = (rows,) if bound.get("return_counts") else (0,)
        return _leaves(leaf, ((rows,), leaf.dtype), (inverse, torch.int64), (counts, torch.int64))

    def _unique_dim(self, leaf: MetaTensor, bound: Mapping[str, Any]) -> Any:
        dim = bound.get("dim")
        if dim is None:
            return self._unique(leaf, bound)
        size = list(leaf.shape)
        along = size[dim]
        rows = size[dim] = int(self._count(f"how many of {along} slices {_DIFFER}", self._likely.part_of(along)))
        inverse = (along,) if bound.get("return_inverse") else (0,)
        counts = (rows,) if bound.get("return_counts") else (0,)
        return _leaves(leaf, (tuple(size), leaf.dtype), (inverse, torch.int64), (counts, torch.int64))

    def _repeated(self, leaf: MetaTensor, bound: Mapping[str, Any]) -> Any:
        total = bound.get("output_size")
        if total is None:
            total = self._count(f"how many rows {leaf.numel()} repeated ones make", leaf.numel())
        return _leaves(leaf, ((int(total),), torch.int64))[0]

    def _bins(self, leaf: MetaTensor, bound: Mapping[str, Any]) -> Any:
        bins = self._count("how many bins there are, with as many in each", bound.get("minlength") or None)
        if bins is None or bound.get("weights") is not None:
            return None if bins is None else _leaves(leaf, ((int(bins),), bound["weights"].dtype))[0]
        each, more = divmod(leaf.numel(), int(bins))
        with _torch.dispatch.disable_current_modes():
            return torch.tensor([each + (i < more) for i in range(int(bins))])

    def _rows(self, leaf: MetaTensor, packet: Any) -> Any:
        return self._count(
            f"how many of {leaf.numel()} elements {_COUNTED[packet]}", self._likely.part_of(leaf.numel())
        )


def _constant(value: Any, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns a real tensor of one value, or of several, as large as another tensor."""
    with _torch.dispatch.disable_current_modes():
        return torch.as_tensor(value, dtype=dtype).expand(like.shape).clone()


def _kind_of(leaf: torch.Tensor) -> str:
    return f"a {'flag' if leaf.dtype is torch.bool else 'number'} ({str(leaf.dtype).removeprefix('torch.')})"


def _key(line: str) -> str:
    """Returns the end of a line's place, as `assume` takes it."""
    return ":".join(line.split(": ")[0].rsplit("/", 1)[-1].split(":")[:2])


def positions(leaf: MetaTensor, rows: int) -> MetaTensor:
    """Returns what `nonzero` gives of a leaf if so many of its elements are not zero."""
    stride = (1, max(rows, 1)) if leaf.meta_spec.device.type == "cpu" else (leaf.dim(), 1)
    return new_leaf(Spec.make((rows, leaf.dim()), stride, 0, torch.int64, leaf.meta_spec.device))


def _leaves(leaf: MetaTensor, *made: tuple[tuple[int, ...], torch.dtype]) -> tuple[MetaTensor, ...]:
    """Returns new leaves of some sizes and dtypes, on the device of another."""
    return tuple(
        new_leaf(Spec.make(size, strides.packed(size), 0, dtype, leaf.meta_spec.device)) for size, dtype in made
    )


_DIFFER = "differ from all others"
_COUNTED = {_aten.nonzero: "are not zero", _aten._unique2: _DIFFER, _aten.unique_consecutive: _DIFFER}
_NEEDED = {
    _aten.index: "how many elements of a mask are true",
    _aten.masked_select: "how many elements of a mask are true",
    _aten.repeat_interleave: "how many rows there are, with each as often as it is repeated",
    _aten.unique_dim: "how many different slices there are",
    _aten.unique_dim_consecutive: "how many different slices there are",
    _aten.bincount: "how many bins there are: with `minlength`, that many are assumed",
    _aten._ctc_loss: "the lengths of sequences",
    _aten._pack_padded_sequence: "the lengths of sequences",
}
_ANSWERS: dict[Any, Callable[..., Any]] = {
    _aten._local_scalar_dense: Assumptions._item,
    _aten.nonzero: Assumptions._nonzero,
    _aten._unique2: Assumptions._unique,
    _aten.unique_consecutive: Assumptions._unique_dim,
    _aten.unique_dim: Assumptions._unique_dim,
    _aten.unique_dim_consecutive: Assumptions._unique_dim,
    _aten.repeat_interleave: Assumptions._repeated,
    _aten.bincount: Assumptions._bins,
}
"""What operators give that read values, or have a size that depends on data."""
