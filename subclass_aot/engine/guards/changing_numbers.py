"""Finds numbers that change from call to call."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Facts, Kind
from subclass_aot.engine.facts import fact as kinds
from subclass_aot.engine.signature import JointSignature

_LEAF = re.compile(rf"\b{kinds.LEAF} (\d+)(?=:)")


class ChangingNumbers:
    """The numbers of one compiled function that were seen to change between calls, and are symbols from then on.

    Attributes:
        paths: Where the user finds them.
        reasons: Of those that the latest call has added, what they were and are.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.reasons: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._kept: set[str] = set()

    def learn(self, arguments: Arguments, signature: JointSignature, before: Facts, now: Facts) -> None:
        """Notes numbers that are others in a call than in one that was compiled.

        Args:
            arguments: The call.
            signature: What the function left behind in the other call, forward and backward.
            before: The facts of that one.
            now: Those of the call.
        """
        ids, then, assigned = set(arguments.identified.values()), numbers_in(before), signature.assigned_paths
        paths = {f"{kinds.LEAF} {i}": path for i, path in enumerate(arguments.paths_of_leaves)}
        for place, number in numbers_in(now).items():
            known = then.get(place)
            is_other = known is not None and type(known) is type(number) and known != number
            if (is_other or known is None and place in assigned) and number not in ids:
                path = paths.get(place, place)
                if path not in self._kept and path not in self.paths:
                    self.paths.add(path)
                    self._places[path] = place
                    then_and_now = f"{known} before, {number} now" if is_other else f"new, {number} now"
                    self.reasons[path] = f"{path}: {then_and_now}"

    def told(self, paths: Sequence[str], differences: Iterable[str]) -> list[str]:
        """Returns what differs from another call, with what the new numbers were and are in place of their facts.

        Args:
            paths: What the flattened arguments are called.
            differences: The facts that differ, each as one line.
        """
        leaves = dict(enumerate(paths))
        names = [name for path in self.reasons for name in (path, self._places[path])]
        beginnings = tuple(
            [f"{of}{name}{end}" for name in names for of in ("", "class of ") for end in (":", ".size(")]
        )
        rest = [line for line in differences if not line.startswith(beginnings)]
        return [*self.reasons.values(), *(_LEAF.sub(lambda x: leaves.get(int(x[1]), x[0]), line) for line in rest)]

    def keep(self, paths: Collection[str]) -> bool:
        """Has numbers stay numbers, as where the function fails with symbols; returns whether one was a symbol.

        Args:
            paths: Where the user finds them.
        """
        found = self.paths.intersection(paths)
        self.paths -= found
        self._kept |= found
        self.reasons = {path: reason for path, reason in self.reasons.items() if path not in found}
        return bool(found)


def numbers_in(facts: Facts) -> Mapping[str, int | float]:
    """Finds the numbers among arguments, and those that objects hold, also in tuples, by their places."""
    found: dict[str, int | float] = {}
    for fact in facts:
        is_held = fact.within or fact.place.startswith(kinds.LEAF)
        if is_held and fact.kind is Kind.VALUE and isinstance(fact.value, kinds.Constant):
            found.update(_numbers(fact.place, fact.value.value))
    return found


def _numbers(place: str, value: object) -> Iterator[tuple[str, int | float]]:
    if type(value) is int or type(value) is float:
        yield place, value
    elif type(value) is tuple:
        for i, part in enumerate(value):
            yield from _numbers(f"{place}[{i}]", part)
