"""Finds which assumptions of a trace on sizes do not hold of a call, and numbers that change from call to call."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot.call import Arguments
from subclass_aot.codegen import Source
from subclass_aot.facts import Facts, Kind, Scope
from subclass_aot.facts import fact as kinds
from subclass_aot.signature import JointSignature
from subclass_aot.sizes import tensors_of


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


def unmet(signature: JointSignature, arguments: Arguments) -> list[str]:
    """Lists what the trace assumed of sizes and does not hold of a call, which fits otherwise. Each is one line."""
    if signature.assumptions.symbols is None:
        return []
    numbers = {
        f"{path}.{kind}({dim})": n
        for path, tensor, _ in tensors_of(arguments)
        for kind, all_numbers in (("size", tensor.size()), ("stride", tensor.stride()))
        for dim, n in enumerate(all_numbers)
    }
    values: dict[str, int] = {}
    wrong = []
    for place, text in Scope.of(signature).places:
        if text.isidentifier() and text not in values:
            values[text] = numbers[place]
        elif place in numbers and (expected := _evaluated(text, values)) is not None and expected != numbers[place]:
            wrong.append(f"{place}: {text} before, that is {expected}, {numbers[place]} now")
    where = ", ".join(f"{name} = {value}" for name, value in values.items())
    for text, _ in signature.assumptions.symbols.assumptions(values):
        if _evaluated(text, values) is False:
            wrong.append(f"{text} before, not so now, where {where}")
    return wrong


def _evaluated(text: str, values: Mapping[str, int]) -> Any:
    """Computes the value of an expression over symbols, or None where one of them is not known."""
    if not values.keys() >= set(re.findall(r"\bs\d+\b", text)):
        return None
    source = Source("evaluated", ", ".join(values))
    source.globals |= {"math": math, "torch": torch}
    source.line(f"return {text}")
    return source.build()(**values)


def numbers_in(facts: Facts) -> Mapping[str, int]:
    """Finds the integers that objects hold, by their paths."""
    found = {}
    for fact in facts:
        value = fact.value
        if fact.kind is Kind.VALUE and fact.within and isinstance(value, kinds.Constant) and type(value.value) is int:
            found[fact.place] = value.value
    return found
