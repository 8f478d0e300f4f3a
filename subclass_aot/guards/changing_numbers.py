"""Finds numbers that a function changes itself and that change from call to call."""

from __future__ import annotations

from collections.abc import Mapping

from subclass_aot.call import Arguments
from subclass_aot.facts import Facts, Kind
from subclass_aot.facts import fact as kinds
from subclass_aot.signature import JointSignature


def changing_numbers(arguments: Arguments, signature: JointSignature, before: Facts, now: Facts) -> set[str]:
    """Finds the paths of numbers that a function changes itself and that are others now than when it was compiled.

    Args:
        arguments: A call.
        signature: What the function left behind in another call, forward and backward.
        before: The facts of that one.
        now: Those of the call.
    """
    ids, then = set(arguments.identified.values()), numbers_in(before)
    numbers = ((path, n) for path, n in numbers_in(now).items() if path in signature.assigned_paths and n not in ids)
    return {path for path, n in numbers if then.get(path) != n}


def numbers_in(facts: Facts) -> Mapping[str, int]:
    """Finds the integers that objects hold, by their paths."""
    found = {}
    for fact in facts:
        value = fact.value
        if fact.kind is Kind.VALUE and fact.within and isinstance(value, kinds.Constant) and type(value.value) is int:
            found[fact.place] = value.value
    return found
