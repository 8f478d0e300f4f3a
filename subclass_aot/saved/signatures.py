"""Signatures as records without anything that belongs to one process, and back."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from subclass_aot.errors import JointGraphError
from subclass_aot.flatten import IndexMap
from subclass_aot.objects import Pinned, Way
from subclass_aot.outcome import NewObject, Outcome
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.stand_ins import NamedObject, SavedNew, SavedOutcome, SavedSignature, SavedWay
from subclass_aot.signature import Assumptions, JointSignature
from subclass_aot.symbols import Symbols

_SYMBOLIC = "it demands something of numbers that depend on data. Compile with dynamic=False"
_UNKNOWN_CLASS = "an object of {name} is made, and with trust=False only containers of Python are"
_NO_OBJECT = "the function that was given has no {path}"
_NEEDS_FUNCTION = "it reads or changes {path}, which the function or module has: load(path, fn_or_module)"

_CHANGES_FUNCTION = "it puts something into the {kinds} of a function, which no file does with trust=False"

_ASSUMED = ("looks", "read", "beginnings")
_OF_FUNCTIONS = frozenset({"globals", "cells", "partial"})
_CONTAINERS = (list, dict, set, OrderedDict, deque, defaultdict)
_FACTORIES = (None, list, dict, set, int, float, str, tuple)


def saved_signature(signature: JointSignature, pinned: Mapping[int, str]) -> SavedSignature:
    """A signature as a record.

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
        outcome = _saved_outcome(signature.outcome, pinned)
    given = {
        field.name: getattr(signature, field.name)
        for field in dataclasses.fields(SavedSignature)
        if field.name not in ("outcome", *_ASSUMED)
    }
    return SavedSignature(**given, outcome=outcome, **{name: getattr(assumptions, name) for name in _ASSUMED})


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
        outcome.default_dtype, outcome.attributes,
    )  # fmt: skip


def _saved_new(new: NewObject) -> SavedNew:
    return SavedNew(new.cls, new.is_registered, new.metadata, new.parts, new.tables, new.like)


def signature_of(
    saved: SavedSignature, named: Mapping[str, Any], trust: bool, symbols: Symbols | None = None
) -> JointSignature:
    """The inverse of `saved_signature`.

    Args:
        saved: The record.
        named: The objects that are the same at each call, by their paths.
        trust: Whether objects of any class are made.
        symbols: The symbols in it.

    Raises:
        Refused: It does not fit together, or an object is not there.
    """
    out = saved.outcome
    with at("outcome"):
        ways = tuple(_way(way, named) for way in out.objects)
        new = tuple(_new(each, trust) for each in out.new)
    kinds = {change.table.kind for change in out.changes} & _OF_FUNCTIONS
    if kinds and not trust:
        raise Refused(_CHANGES_FUNCTION.format(kinds=", ".join(sorted(kinds))))
    outcome = Outcome(
        out.result, new, ways, out.changes, out.assigned, out.generator, out.keeps_generator, out.default_dtype,
        out.attributes,
    )  # fmt: skip
    index_map = IndexMap.of(given.meta for given in saved.inputs)
    if len(index_map.slots) != sum(len(given.specs) for given in saved.inputs):
        raise Refused("the inputs have other leaves than specs")
    assumptions = Assumptions(symbols, **{name: getattr(saved, name) for name in _ASSUMED})
    return JointSignature(
        saved.inputs, index_map, saved.views, saved.mutations, saved.outputs, saved.intermediate_bases,
        saved.made_leaves, outcome, saved.tangents, assumptions, saved.grad_modes,
    )  # fmt: skip


def _way(way: SavedWay, named: Mapping[str, Any]) -> Way:
    if not isinstance(way.start, NamedObject):
        return Way(way.start, way.steps)
    if way.start.path not in named:
        raise Refused(_NO_OBJECT.format(path=way.start.path))
    return Way(Pinned(named[way.start.path]), way.steps)


def _new(new: SavedNew, trust: bool) -> NewObject:
    if new.is_registered:
        made = NewObject(new.cls, True, new.metadata, new.parts)
        try:
            made.unflatten()
        except JointGraphError as error:
            raise Refused(str(error)) from error
        return made
    if not trust and (new.cls not in _CONTAINERS or not _is_plain_limit(new.like)):
        raise Refused(_UNKNOWN_CLASS.format(name=new.cls.__qualname__))
    if not isinstance(new.like, int) and new.like is not None and not callable(new.like):
        raise Refused("a limit of a container is none")
    return NewObject(new.cls, parts=new.parts, tables=new.tables, like=new.like)


def _is_plain_limit(like: object) -> bool:
    return type(like) is int or like in _FACTORIES


def needs_function(saved: SavedSignature, is_of_call: Callable[[str], bool]) -> str:
    """The path of something that only the function has, and that a call needs; "" if there is nothing."""
    for given in saved.inputs:
        if not is_of_call(given.path):
            return given.path
    for way in saved.outcome.objects:
        if isinstance(way.start, NamedObject) and not is_of_call(way.start.path):
            return way.start.path
    return ""
