"""Clauses of the contract, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.blame import slip_of
from subclass_aot.testing.contract.trial import BrokenClause, DoesNotApply, Trial, first_line

Severity = Literal["S", "C", "P"]
"""What breaking a clause does: wrong results in silence, a crash, or loss of time."""


@dataclass(frozen=True)
class Clause:
    """One thing that a traceable wrapper subclass owes.

    Attributes:
        number: Its number in the contract; several clauses may be parts of one number.
        severity: What breaking it does. Of an S clause, raising is no fault: what raises is not wrong in silence.
        name: What is tried, in a few words; no two clauses of one number have the same.
        sentence: What is owed.
        check: Raises `BrokenClause` or `DoesNotApply`, or what the class raises; says nothing when it is kept.
        is_drawn: Whether it is tried on what is drawn of the parameters of `make`, too; not if it is slow.
        is_quick: Whether it is quick: it compiles nothing and starts no process.
    """

    number: int
    severity: Severity
    name: str
    sentence: str
    check: Callable[[Trial], None]
    is_drawn: bool = True
    is_quick: bool = True


Settled = tuple[Literal["kept", "broken", "raises", "does not apply"], str]
"""What came of a check, and why."""


def settled(check: Callable[[], None], cls: type | None = None) -> Settled:
    """Runs a check, and says what came of it.

    Args:
        check: The check.
        cls: The class that is tried. Where its own code raises what no author means to raise, it is broken, and what it
            refuses is not.
    """
    try:
        check()
    except DoesNotApply as reason:
        return "does not apply", str(reason)
    except BrokenClause as error:
        return "broken", str(error)
    except Exception as error:
        pass_on_interruption(error)
        slip = None if cls is None else slip_of(error, cls)
        return ("raises", first_line(error)) if slip is None else ("broken", slip)
    return "kept", ""


def is_fault(clause: Clause, verdict: str) -> bool:
    """Returns whether a class must be mended. To raise is a fault where the class owes a result."""
    return verdict == "broken" or (verdict == "raises" and clause.severity == "C")


class Clauses(list[Clause]):
    """The clauses of one subject, in order.

    Args:
        are_drawn: Whether they are tried on what is drawn, too.
        are_quick: Whether they compile nothing and start no process; if not, they are not drawn either.
    """

    def __init__(self, are_drawn: bool = True, are_quick: bool = True) -> None:
        super().__init__()
        self._are_drawn, self._are_quick = are_drawn and are_quick, are_quick

    def add(
        self, number: int, severity: Severity, name: str, sentence: str
    ) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
        """Makes the decorated function of a trial the check of a clause."""

        def append(check: Callable[[Trial], None]) -> Callable[[Trial], None]:
            self.append(Clause(number, severity, name, sentence, check, self._are_drawn, self._are_quick))
            return check

        return append
