"""The facts of sizes that are symbols: whether what a trace assumed of them holds of a call."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping

import torch

from subclass_aot.base.codegen import Source
from subclass_aot.engine.facts.fact import Assumed, Fact, Kind
from subclass_aot.engine.facts.scope import Scope


def facts_of_sizes(numbers: Mapping[str, int], scope: Scope) -> Iterator[Fact]:
    """Lists the sizes that have to be what follows from others, and the assumptions.

    Args:
        numbers: All sizes and strides of the call, such as `args[0].size(1)`.
        scope: What counts: where symbols stand, and what was assumed of them.
    """
    found = [(place, text) for place, text in scope.places if place in numbers]
    first = {text: place for place, text in reversed(found) if text.isidentifier()}  # which says what the symbol is
    values = {text: numbers[place] for text, place in first.items()}
    for place, text in found:
        if first.get(text) != place and (expected := _evaluated(text, values)) is not None:
            now = numbers[place]
            yield Fact(place, Kind.SIZE, text if expected == now else f"that is {expected}, {now}")
    where = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
    for text in scope.assumptions:
        if (holds := _evaluated(text, values)) is not None:
            yield Fact(text, Kind.ASSUMED, Assumed(bool(holds), where))


def _evaluated(text: str, values: Mapping[str, int]) -> object:
    """Computes the value of an expression over symbols, or None where one of them is not known."""
    names = tuple(sorted(set(re.findall(r"\bs\d+\b", text))))
    if not values.keys() >= set(names):
        return None
    try:
        return _function_of(text, names)(*[values[name] for name in names])
    except ZeroDivisionError:  # what the trace assumed before it divided does not hold
        return False


@functools.lru_cache(maxsize=4096)
def _function_of(text: str, names: tuple[str, ...]) -> Callable[..., object]:
    source = Source("evaluated", ", ".join(names))
    source.globals |= {"math": math, "torch": torch}
    source.line(f"return {text}")
    return source.build()
