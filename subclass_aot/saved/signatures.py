"""Signatures as records without anything that belongs to one process, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from subclass_aot.errors import JointGraphError
from subclass_aot.flatten import IndexMap
from subclass_aot.objects import Pinned, Way
from subclass_aot.outcome import BackwardOutcome, NewObject, Outcome
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.stand_ins import NamedObject, SavedBackward, SavedNew, SavedOutcome, SavedSignature, SavedWay
from subclass_aot.signature import Assumptions, JointSignature
from subclass_aot.symbols import Symbols

_SYMBOLIC = "it assumes something of numbers that depend on data. Compile with dynamic=False"
_NO_OBJECT = "the function that was given has no {path}"

_ASSUMED = ("looks", "read", "beginnings", "absent")


def saved_signature(signature: JointSignature, pinned: Mapping[int, str]) -> SavedSignature:
    """Returns a signature as a record.

    Args:
        signature: It.
        pinned: The paths of objects that are the same at each call, by the ids of the objects.

    Raises:
        Refused: It has numbers that depend on data, or objects that cannot be named.
    """
    assumptions = signature.assumptions
    if assumptions.runtime_asserts:
        raise Refused(_SYMBOLIC)
    with at("outcome"):
        outcome, later = _saved_outcome(signature.outcome, pinned), signature.backward_outcome
        backward = None
        if later is not None:
            backward = SavedBackward(
                later.outputs, _saved_outcome(later.outcome, pinned), later.expected, later.retained
            )
    given = {
        field.name: getattr(signature, field.name)
        for field in dataclasses.fields(SavedSignature)
        if field.name not in ("outcome", "backward_outcome", *_ASSUMED)
    }
    assumed = {name: getattr(assumptions, name) for name in _ASSUMED}
    return SavedSignature(**given, outcome=outcome, backward_outcome=backward, **assumed)


def _saved_outcome(outcome: Outcome, pinned: Mapping[int, str]) -> SavedOutcome:
    ways = []
    for way in outcome.objects:
        start: Any = way.start
        if isinstance(start, Pinned):
            if id(start.value) not in pinned:
                raise Refused(f"an object of {type(start.value).__qualname__} has no path")
            start = NamedObject(pinned[id(start.value)])
        ways.append(SavedWay(start, way.steps))
    new = tuple(map(_saved_new, outcome.new))
    return SavedOutcome(
        outcome.result, new, tuple(ways), outcome.changes, outcome.assigned, outcome.generator, outcome.keeps_generator,
        outcome.default_dtype, outcome.attributes, outcome.kept,
    )  # fmt: skip


def _saved_new(new: NewObject) -> SavedNew:
    return SavedNew(new.cls, new.is_registered, new.metadata, new.parts, new.tables, new.like)


def signature_of(saved: SavedSignature, named: Mapping[str, Any], symbols: Symbols | None = None) -> JointSignature:
    """Makes the inverse of `saved_signature`.

    Args:
        saved: The record.
        named: The objects that are the same at each call, by their paths.
        symbols: The symbols in it.

    Raises:
        Refused: An object, or the pytree of a class, is not there.
    """
    with at("outcome"):
        outcome, later, backward = _outcome(saved.outcome, named), saved.backward_outcome, None
        if later is not None:
            backward = BackwardOutcome(later.outputs, _outcome(later.outcome, named), later.expected, later.retained)
    index_map = IndexMap.of(given.meta for given in saved.inputs)
    assumptions = Assumptions(symbols, **{name: getattr(saved, name) for name in _ASSUMED})
    return JointSignature(
        saved.inputs, index_map, saved.views, saved.mutations, saved.outputs, saved.intermediate_bases,
        saved.made_leaves, outcome, saved.tangents, assumptions, saved.grad_modes, backward,
    )  # fmt: skip


def _outcome(out: SavedOutcome, named: Mapping[str, Any]) -> Outcome:
    ways, new = tuple(_way(way, named) for way in out.objects), tuple(map(_new, out.new))
    return Outcome(
        out.result, new, ways, out.changes, out.assigned, out.generator, out.keeps_generator, out.default_dtype,
        out.attributes, out.kept,
    )  # fmt: skip


def _way(way: SavedWay, named: Mapping[str, Any]) -> Way:
    if not isinstance(way.start, NamedObject):
        return Way(way.start, way.steps)
    if way.start.path not in named:
        raise Refused(_NO_OBJECT.format(path=way.start.path))
    return Way(Pinned(named[way.start.path]), way.steps)


def _new(new: SavedNew) -> NewObject:
    made = NewObject(new.cls, new.is_registered, new.metadata, new.parts, new.tables, new.like)
    if new.is_registered:
        try:
            made.unflatten()
        except JointGraphError as error:
            raise Refused(str(error)) from error
    return made


def needs_function(saved: SavedSignature, is_of_call: Callable[[str], bool]) -> str:
    """Returns the path of something that only the function has, and that a call needs; "" if there is nothing."""
    for given in saved.inputs:
        if not is_of_call(given.path):
            return given.path
    for way in saved.outcome.objects:
        if isinstance(way.start, NamedObject) and not is_of_call(way.start.path):
            return way.start.path
    return ""
