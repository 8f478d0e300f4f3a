"""The values that one compiled function has seen where it looks at them. See Note [Looks at values]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subclass_aot.errors import DataDependentError
from subclass_aot.runtime.constants import same_constant
from subclass_aot.runtime.looks import OtherValue
from subclass_aot.trace import JointSignature, Looks

_TOO_MANY = """The traced function looks at a value that differs from call to call; {count} are compiled for already.
  Your line:  {line}
  Its values: {values}
  Each value, or each answer to what is asked of it, is compiled for on its own, up to values_limit={limit}.
  Instead: say n.item() in place of int(n) or float(n), which can then be a symbol; compute both sides and choose with
  torch.where; read the value outside; or raise values_limit, if the values are few."""

_NOT_THE_SAME = """The traced function looks at a value that comes out otherwise each time it is computed.
  Your line:  {line}
  It was {traced} when the call was traced, and {found} when what was compiled for it ran on the same tensors.
  It may depend on memory that nobody has written, on the order of sums in another compiler, or on another thread.
  Instead: compute it outside the traced function."""


class ValueHistory:
    """What a compiled function does about looks at values.

    Args:
        dynamic: As in `aot_compile`. `False`: no number is a symbol; `True`: every one is.
        allowed: Whether the function may look at values.
        limit: For how many sets of values one signature is compiled at the most.

    Attributes:
        varying: The lines where numbers were seen to differ.
    """

    def __init__(self, dynamic: bool | None, allowed: bool, limit: int) -> None:
        self.varying: set[str] = set()
        self._dynamic = dynamic
        self._allowed = allowed
        self._limit = limit

    def looks(self) -> Looks | None:
        """What answers the next trace where it looks at values."""
        return Looks(self.varying, self._dynamic is True, self._dynamic is False) if self._allowed else None

    def may_fit(self, signature: JointSignature, tried: Mapping[Any, OtherValue]) -> bool:
        """Whether a specialization may fit a call, after what others found in it."""
        return all(_agrees(signature, specialization.signature, other) for specialization, other in tried.items())

    def learn(self, tried: Mapping[Any, OtherValue], fitting: int) -> None:
        """Hears what specializations found that fit a call but for its values.

        Args:
            tried: These specializations, and what they found.
            fitting: How many there are for the signature of the call.

        Raises:
            DataDependentError: There are too many, or values are not the same twice.
        """
        for specialization, other in tried.items():
            if other.position is not None and self._dynamic is not False:
                look = specialization.signature.looks[other.position]
                if _is_number(look.value):
                    self.varying.add(look.line)
        if not tried:
            return
        latest, other = list(tried.items())[-1]
        line, expected, found = _described(latest.signature, other)
        for specialization, earlier in list(tried.items())[:-1]:
            if _way(specialization.signature, earlier) == _way(latest.signature, other):
                raise DataDependentError(_NOT_THE_SAME.format(line=line, traced=expected, found=found))
        if fitting >= self._limit:
            seen = [_described(s.signature, o) for s, o in tried.items()]
            values = ", ".join(dict.fromkeys([value for _, value, _ in seen] + [found]))
            raise DataDependentError(_TOO_MANY.format(line=line, values=values, count=fitting, limit=self._limit))


def _agrees(candidate: JointSignature, tried: JointSignature, other: OtherValue) -> bool:
    """Whether `candidate` expects what another specialization found in the call."""
    if other.position is None:
        return True
    found = [*(look.value for look in tried.looks[: other.position]), other.value]
    for mine, its, value in zip(candidate.looks, tried.looks, found, strict=False):
        if mine.line != its.line:  # a number that is a symbol in one of them
            return True
        if not same_constant(mine.value, value):
            return False
    return True


def _described(signature: JointSignature, other: OtherValue) -> tuple[str, str, str]:
    """The line of a look, the value that was traced, and the one that was found."""
    if other.position is not None:
        look = signature.looks[other.position]
        return look.line, repr(look.value), repr(other.value)
    demand, numbers = other.value
    names = {symbol: f"n{i}" for i, symbol in enumerate(demand.numbers)}
    return demand.line, demand.text(names), ", ".join(f"n{i} = {n}" for i, n in enumerate(numbers))


def _way(signature: JointSignature, other: OtherValue) -> tuple[Any, ...]:
    """What a specialization saw until it found another value, that value, and the one that was traced."""
    seen = [(look.line, repr(look.value)) for look in signature.looks[: (other.position or 0) + 1]]
    return seen, other.position, _described(signature, other)


def _is_number(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)
