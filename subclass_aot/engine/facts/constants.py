"""Python values among facts: kept as guards keep them."""

from __future__ import annotations

import hashlib
import pickle
import types

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.weak import is_weak
from subclass_aot.engine.facts.fact import HASH, Constant
from subclass_aot.engine.objects import kept
from subclass_aot.engine.tables import ATOMS


def constant(value: object) -> Constant:
    """Keeps a Python value as guards do. What a file says of one that may change in silence is said now."""
    if type(value) in ATOMS:
        return Constant(value)
    copied = kept(value)
    if copied is not value or _stays(value):
        return Constant(copied)
    return Constant(value, digest_of(value))


def digest_of(value: object) -> str | None:
    """Returns the hash of the pickle of a value; None if there is none."""
    try:
        return hashlib.sha256(pickle.dumps(value, 4)).hexdigest()[:24]
    except Exception as error:  # code of any class may raise anything
        pass_on_interruption(error)
        return None


SMALL = 1 << 32
"""Numbers below it are no hashes."""


def hash_of(holder: object, number: int) -> Constant | None:
    """Keeps a number that is the hash of the object that holds it."""
    try:
        return Constant(number, HASH) if hash(holder) == number else None
    except Exception as error:  # code of any class may raise anything
        pass_on_interruption(error)
        return None


def _stays(value: object) -> bool:
    """Returns whether a value cannot change, or is known by name or by code."""
    if type(value) in ATOMS or is_weak(value) or isinstance(value, _NAMED):
        return True
    if isinstance(value, tuple):
        return all(map(_stays, tuple.__iter__(value)))
    if isinstance(value, frozenset):
        return all(map(_stays, frozenset.__iter__(value)))
    return not hasattr(value, "__dict__") and not hasattr(type(value), "__next__")  # an iterator changes with each step


_NAMED = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, torch.nn.Module)
