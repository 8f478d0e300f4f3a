"""Hashes of functions and classes: two of one hash are made of the same code.

The code that Python runs is hashed, not the text, which may not be there. Functions that it calls by name are not: a
file is not told that a library has changed, but for torch and this one, whose versions it has.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base.bytecode import cached_by_code
from subclass_aot.base.named import METHODS
from subclass_aot.base.put_back import PutBack

_LIBRARIES = ("torch", "builtins", "typing", "enum", "abc")
"""Packages whose classes are known by their names: a file has the version of torch."""

Members = tuple[tuple[type, Mapping[str, Any], Mapping[Any, Any]], ...] | types.CodeType | None
"""What a class is made of: each base with its attributes and its rules. The code of a function. None of others."""


def members_of(thing: object) -> Members:
    """Returns what a function or a class is made of now: a class may get other methods later."""
    if isinstance(thing, type):
        return _members_of_class(thing)
    return thing.__code__ if isinstance(thing, types.FunctionType) else None


@contextmanager
def read_once() -> Iterator[None]:
    """Runs the block, in which each class is read once."""
    with PutBack(_members_of_class.cache_clear):
        _members_of_class.cache_clear()
        yield


@functools.cache
def _members_of_class(cls: type) -> Members:
    if cls.__module__.partition(".")[0] in _LIBRARIES[:2]:
        return None
    bases = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES]
    return tuple([(base, dict(vars(base)), dict(_rules_of(base))) for base in bases])


def source_of(thing: Any, members: Members = None) -> str:
    """Returns the hash of a function or a class, its bases and the rules of a wrapper class included.

    Args:
        thing: It.
        members: What it was made of, if not what it is made of now.

    >>> source_of(lambda x: x + 1) == source_of(lambda x: x + 1), source_of(lambda x: x + 1) == source_of(lambda x: x)
    (True, False)
    """
    if isinstance(thing, types.FunctionType):
        return _hash(_of_function(thing, members if isinstance(members, types.CodeType) else thing.__code__))
    if isinstance(thing, type):
        with read_once():
            return _hash(_of_class(thing, members if isinstance(members, tuple) else members_of(thing)))
    if isinstance(thing, types.MethodType):
        return source_of(thing.__func__)
    if isinstance(thing, METHODS):
        return _hash(part for function in _functions(thing) for part in _of_function(function, function.__code__))
    if isinstance(thing, functools.partial):
        return source_of(thing.func)
    return "" if isinstance(thing, types.BuiltinFunctionType) else source_of(type(thing))


def _hash(parts: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _of_function(function: types.FunctionType, code: types.CodeType) -> Iterator[str]:
    yield _of_code(code)
    yield from map(_text, function.__defaults__ or ())
    yield from (f"{name}={_text(value)}" for name, value in sorted((function.__kwdefaults__ or {}).items()))


@cached_by_code
def _of_code(code: types.CodeType) -> str:
    names = repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    constants = (_of_code(x) if isinstance(x, types.CodeType) else _text(x) for x in code.co_consts)
    return "\n".join((code.co_code.hex(), names, *constants))


def _of_class(cls: type, members: Members) -> Iterator[str]:
    yield f"{cls.__module__}:{cls.__qualname__}"
    assert not isinstance(members, types.CodeType)
    for _, attributes, rules in members or ():
        for name, value in sorted(attributes.items()):
            yield from (f"{name} {part}" for f in _functions(value) for part in _of_function(f, f.__code__))
        for op, rule in sorted(
            {str(op): rule.function for op, rule in rules.items()}.items(), key=lambda pair: pair[0]
        ):
            yield from (f"{op} {part}" for f in _functions(rule) for part in _of_function(f, f.__code__))


def _rules_of(cls: type) -> Mapping[Any, Any]:
    declaration = vars(cls).get("__wrapper_declaration__")
    return {} if declaration is None else declaration.rules


def _functions(value: object) -> Iterator[types.FunctionType]:
    """Yields the functions that an attribute of a class is made of, but for those that this library generates."""
    for part in (
        value,
        *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__")),
    ):
        if isinstance(part, types.FunctionType) and not hasattr(part, "__source__"):
            yield part


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_text, value))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    is_plain = value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype)
    return repr(value) if is_plain else type(value).__qualname__
