"""Clauses 15 to 19: the context, which is the key of what was compiled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping

import torch

from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import DoesNotApply, Trial, flattened, require

CLAUSES = Clauses()


@CLAUSES.add(15, "C", "equality", "the contexts of equal tensors are equal, by `==`, which gives a bool")
def _equality(trial: Trial) -> None:
    one, other = _context(trial), _context(trial)
    same = one == other
    require(isinstance(same, bool), f"== gives a {type(same).__name__}")
    require(same, "equal tensors have contexts that are not equal: each call compiles again")
    require(not one != other, "they are equal by ==, and not equal by !=")  # noqa: SIM202


@CLAUSES.add(15, "C", "no tensor in the context", "tensors are inner tensors, not context")
def _no_tensor(trial: Trial) -> None:
    found = [value for value in _within(_context(trial)) if isinstance(value, torch.Tensor)]
    require(not found, "the context holds a tensor, whose values a compiled function would keep")


@CLAUSES.add(16, "C", "copies", "the context can be copied deeply and pickled, and is equal afterwards")
def _copies(trial: Trial) -> None:
    context = _context(trial)
    require(copy.deepcopy(context) == context, "a deep copy of the context is not equal to it")
    require(pickle.loads(pickle.dumps(context)) == context, "the context is not equal to itself after pickling")


@CLAUSES.add(17, "S", "immutable", "nothing that can be changed in place is both in the tensor and in its context")
def _immutable(trial: Trial) -> None:
    tensor = trial.make()
    (_, one), (_, other) = flattened(tensor), flattened(tensor)
    mine = {id(value) for value in _within(one) if isinstance(value, list | dict | set | bytearray)}
    shared = [value for value in _within(other) if id(value) in mine]
    require(not shared, f"{shared[:1]} is the same object at each flatten: who changes it changes a key in use")


@CLAUSES.add(17, "S", "hash", "contexts that are equal have one hash")
def _hash(trial: Trial) -> None:
    one, other = _context(trial), _context(trial)
    try:
        same = hash(one) == hash(other)
    except TypeError as error:
        raise DoesNotApply(str(error)) from None
    require(same or one != other, "equal contexts have other hashes: a table finds nothing")


@CLAUSES.add(18, "S", "metadata guard", "`__metadata_guard__` holds for a context and itself")
def _guard(trial: Trial) -> None:
    guard = getattr(trial.cls, "__metadata_guard__", None)
    if guard is None:
        raise DoesNotApply("there is none")
    require(guard(_context(trial), _context(trial)), "it does not hold for the contexts of equal tensors")


@CLAUSES.add(19, "P", "stable hash", "`_stable_hash_for_caching` is the same for equal tensors")
def _stable_hash(trial: Trial) -> None:
    name = "_stable_hash_for_caching"
    if not hasattr(trial.cls, name):
        raise DoesNotApply("there is none")
    one, other = getattr(trial.make(), name)(), getattr(trial.make(), name)()
    require(one == other, "equal tensors have other hashes: caches of compiled code are never hit")


def _context(trial: Trial) -> object:
    return flattened(trial.make())[1]


def _within(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _within(each)
