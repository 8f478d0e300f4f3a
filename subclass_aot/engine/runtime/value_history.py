"""The values that one compiled function has seen where it reads them. See Note [Reads of values]."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from subclass_aot.engine.graph import Looks
from subclass_aot.engine.objects import same_constant
from subclass_aot.engine.runtime.value_checks import OtherValue
from subclass_aot.engine.signature import JointSignature
from subclass_aot.errors import RuntimeAssertError
from subclass_aot.meta.symbols import RuntimeAssert

_TOO_MANY = """The function itself ran: it reads a value that differs from call to call; {count} are compiled for.
  Your line:  {line}
  Its values: {values}
  Each value, or each answer to a query of it, is compiled for on its own, up to values_limit={limit}.
  Instead: say n.item() in place of int(n) or float(n), which can then be a symbol; compute both sides and choose with
  torch.where; read the value, or write the text of it, outside; or raise values_limit, if the values are few."""

_FAILED_ASSERT = """The program says that {runtime_assert}, and in this call {values}.
  Your line:  {line}
  The graph was traced for numbers of which it is true. Instead: say it of numbers of which it always is."""

_NOT_THE_SAME = """The function itself ran: it reads a value that comes out otherwise each time it is computed.
  Your line:  {line}
  It was {traced} when the call was traced, and {found} when what was compiled for it ran on the same tensors.
  It may depend on memory that nobody has written, on another thread, or on how a compiler rounds that fuses operators.
  Calls for which nothing is compiled by now are not compiled, if that value decides.
  Instead: compute it outside the function."""


class ValueHistory:
    """The values that a compiled function has read, and what the next trace does about them.

    Args:
        dynamic: As in `aot_compile`. `False`: no number is a symbol; `True`: every one is.
        allowed: Whether the function may read values.
        limit: For how many sets of values one signature is compiled at the most.

    Attributes:
        varying: The lines where numbers were seen to differ.
        numbers_alone: Whether numbers were the only symbols in a trace that failed.
    """

    def __init__(self, dynamic: bool | None, allowed: bool, limit: int) -> None:
        self.varying: set[str] = set()
        self._dynamic = dynamic
        self._allowed = allowed
        self._limit = limit
        self._cautious = False
        self._keeps_numbers = False
        self.numbers_alone = False
        self._drawn: set[str] = set()
        self._not_the_same: dict[str, str] = {}  # the key is a line

    @property
    def may_have_symbols(self) -> bool:
        """Whether the next trace may have symbols for numbers that are read or drawn."""
        return self._allowed and not self._keeps_numbers and bool(self.varying or self._drawn)

    def keep_numbers(self) -> None:
        """Has numbers that differ stay numbers, if the function fails where they alone are symbols."""
        if self.numbers_alone:
            self.varying.clear()
            self._keeps_numbers = True

    def looks(self, symbols: bool = True) -> Looks | None:
        """Returns what answers the next trace where it reads values.

        Args:
            symbols: Whether numbers that differ may be symbols.
        """
        if not self._allowed:
            return None
        symbols = symbols and not self._keeps_numbers
        varying = self.varying if symbols else ()
        return Looks(
            varying, self._dynamic is True, self._dynamic is False, self._cautious, self._drawn if symbols else None
        )

    @staticmethod
    def reason(signature: JointSignature, other: OtherValue) -> str:
        """Says why a specialization does not fit a call, in words.

        Args:
            signature: Its signature.
            other: What it found in the call.
        """
        line, expected, found = _described(signature, other)
        if other.position is None:
            return f"{expected} before, not so now, where {found} ({line})"
        return f"a value: {expected} before, {found} now ({line})"

    def may_fit(self, signature: JointSignature, tried: Mapping[Any, OtherValue]) -> bool:
        """Returns whether a specialization may fit a call, after what others found in it."""
        return all(_agrees(signature, specialization.signature, other) for specialization, other in tried.items())

    def learn(self, tried: Mapping[Any, OtherValue], made: Collection[Any] = ()) -> None:
        """Notes what specializations found that fit a call but for its values; at least one did.

        Args:
            tried: These specializations, and what they found.
            made: Those that were compiled for this very call. Where one of these does not fit it, and an earlier one
                found the same, the values are not the same twice.

        Raises:
            RuntimeAssertError: What the program says of numbers is not so.
        """
        runtime_asserts = [other.value for other in tried.values() if other.position is None]
        if runtime_asserts:
            self._learn_assert(runtime_asserts[-1], runtime_asserts[:-1] if [*tried][-1] in made else [])
        for specialization, other in tried.items():
            if other.position is not None and self._dynamic is not False:
                look = specialization.signature.assumptions.looks[other.position]
                if _is_number(look.value) and not self._keeps_numbers:
                    self.varying.add(look.line)
        latest, other = list(tried.items())[-1]
        line, expected, found = _described(latest.signature, other)
        for specialization, earlier in list(tried.items())[:-1] if latest in made else ():
            if _expected_and_found(specialization.signature, earlier) == _expected_and_found(latest.signature, other):
                self._not_the_same[line] = _NOT_THE_SAME.format(line=line, traced=expected, found=found)

    def why_not_compiled(self, tried: Mapping[Any, OtherValue], fitting: int) -> str:
        """Returns why a call is not compiled for its values; "" if it is.

        A value may differ each time it is computed, or a signature be compiled for as many sets as it may be.

        Args:
            tried: What fits a call but for its values, and what was found in it.
            fitting: How many there are for the signature of the call.
        """
        for specialization, other in tried.items():
            line = _described(specialization.signature, other)[0]
            if line in self._not_the_same:
                return self._not_the_same[line]
        if fitting < self._limit:
            return ""
        seen = [_described(specialization.signature, other) for specialization, other in tried.items()]
        line, _, found = seen[-1]
        values = ", ".join(dict.fromkeys([*(value for _, value, _ in seen), found]))
        return _TOO_MANY.format(line=line, values=values, count=fitting, limit=self._limit)

    def _learn_assert(
        self, unmet: tuple[RuntimeAssert, list[Any]], earlier: Sequence[tuple[RuntimeAssert, list[Any]]]
    ) -> None:
        """Makes the next trace cautious: what an operator needs of its arguments it may not need of zero and one."""
        runtime_assert, symints = unmet
        if runtime_assert.by == "assumed":
            return
        text, values = _in_words(runtime_assert, symints)
        if runtime_assert.by == "stated" or not self._allowed or (text, values) in [_in_words(*e) for e in earlier]:
            raise RuntimeAssertError(
                _FAILED_ASSERT.format(runtime_assert=text, values=values, line=runtime_assert.line)
            )
        self._cautious = True


def _agrees(candidate: JointSignature, tried: JointSignature, other: OtherValue) -> bool:
    """Returns whether `candidate` expects what another specialization found in the call."""
    if other.position is None:
        return True
    found = [*(look.value for look in tried.assumptions.looks[: other.position]), other.value]
    for mine, its, value in zip(candidate.assumptions.looks, tried.assumptions.looks, found, strict=False):
        if mine.line != its.line:  # a number that is a symbol in one of them
            return True
        if not same_constant(mine.value, value):
            return False
    return True


def _described(signature: JointSignature, other: OtherValue) -> tuple[str, str, str]:
    """Returns the line of a read, the value that was traced, and the one that was found."""
    if other.position is not None:
        look = signature.assumptions.looks[other.position]
        return look.line, repr(look.value), repr(other.value)
    return other.value[0].line, *_in_words(*other.value)


def _in_words(runtime_assert: RuntimeAssert, symints: list[Any]) -> tuple[str, str]:
    """Returns an assumption as text, and the numbers in it, with names."""
    names = {symbol: f"n{i}" for i, symbol in enumerate(runtime_assert.symints)}
    return runtime_assert.text(names), ", ".join(f"n{i} = {n}" for i, n in enumerate(symints))


def _expected_and_found(signature: JointSignature, other: OtherValue) -> tuple[Any, ...]:
    """Returns all that a specialization expects of values, and what it found instead."""
    looks = [(look.line, repr(look.value)) for look in signature.assumptions.looks]
    runtime_asserts = [
        runtime_assert.text({symbol: str(symbol) for symbol in runtime_assert.symints})
        for runtime_assert in signature.assumptions.runtime_asserts
    ]
    return looks, runtime_asserts, other.position, _described(signature, other)


def _is_number(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)
