"""Finds which assumptions of a trace on sizes, values and places in memory do not hold of a call."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot.call import Arguments
from subclass_aot.codegen import Source
from subclass_aot.facts import Facts, Kind
from subclass_aot.facts import fact as kinds
from subclass_aot.flatten import SubclassCreationMeta
from subclass_aot.meta import Spec
from subclass_aot.signature import JointSignature
from subclass_aot.sizes import tensors_of
from subclass_aot.symbols import is_symbolic, plain


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


def symbolic_places(signature: JointSignature) -> dict[str, str]:
    """Returns every size and stride of the inputs that is a symbol or made of symbols, by its place, with its text.

    Where the context of a wrapper repeats one, that place is named, too. See Note [Sizes in contexts].
    """
    if signature.assumptions.symbols is None:
        return {}
    found: dict[str, Any] = {}
    patterns = [pattern for given in signature.inputs for pattern in given.specs]
    for slot, pattern in zip(signature.index_map.slots, patterns, strict=True):
        path = signature.path_of(slot.flat)
        if isinstance(pattern, Spec):
            found.update({f"{path}.size({dim})": n for dim, n in enumerate(pattern.size)})
            found.update({f"{path}.stride({dim})": n for dim, n in enumerate(pattern.stride)})
        elif slot.dim is not None:
            found[f"{path}.{slot.kind}({slot.dim})"] = pattern
    texts = {place: signature.assumptions.symbols.text(n) for place, n in found.items() if is_symbolic(plain(n))}
    for given in signature.inputs:
        if isinstance(given.meta, SubclassCreationMeta):
            texts.update(given.meta.symbolic_places(given.path))
    return texts


def unmet(signature: JointSignature, arguments: Arguments) -> list[str]:
    """Lists what the trace read and assumed that does not hold of a call: beginnings in storages, values, sizes.

    The call fits otherwise. Each is one line.
    """
    wrong = signature.begins_elsewhere((*arguments.values, *arguments.views)) + _read_otherwise(signature, arguments)
    if signature.assumptions.symbols is None:
        return wrong
    numbers = {
        f"{path}.{kind}({dim})": n
        for path, tensor, _ in tensors_of(arguments)
        for kind, all_numbers in (("size", tensor.size()), ("stride", tensor.stride()))
        for dim, n in enumerate(all_numbers)
    }
    values: dict[str, int] = {}
    for place, text in symbolic_places(signature).items():
        if text.isidentifier() and text not in values:
            values[text] = numbers[place]
        elif place in numbers and (expected := _evaluated(text, values)) is not None and expected != numbers[place]:
            wrong.append(f"{place}: {text} before, that is {expected}, {numbers[place]} now")
    where = ", ".join(f"{name} = {value}" for name, value in values.items())
    for text, _ in signature.assumptions.symbols.assumptions(values):
        if _evaluated(text, values) is False:
            wrong.append(f"{text} before, not so now, where {where}")
    return wrong


def _read_otherwise(signature: JointSignature, arguments: Arguments) -> list[str]:
    """Returns the inputs whose values were read while tracing and are others now."""
    if not signature.assumptions.read:
        return []
    plan = arguments.plan
    paths = [arguments.path_of(s.outer) + "".join(s.path) for s in plan.index_map.slots]
    now = dict(zip(paths, plan.unwrap(arguments.values), strict=True))
    wrong = []
    for slot, values in signature.assumptions.read:
        path = signature.path_of(slot)
        if now[path].tolist() != values:
            wrong.append(f"the values of {path}, which were read while tracing")
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
