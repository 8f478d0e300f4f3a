"""What tells that a function or a class is another than it was: a hash of its code.

The code that Python runs is hashed, not the text, which may not be there. Functions that it calls by name are not: a
file is not told that a library has changed, but for torch and this one, whose versions it has.
"""

from __future__ import annotations

import functools
import hashlib
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

_HASHES: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def source_of(thing: Any) -> str:
    """The hash of a function or a class, its bases and the rules of a wrapper class included.

    >>> source_of(lambda x: x + 1) == source_of(lambda x: x + 1), source_of(lambda x: x + 1) == source_of(lambda x: x)
    (True, False)
    """
    if isinstance(thing, types.FunctionType | type):
        known = _HASHES.get(thing)
        if known is None:
            parts = _of_class(thing) if isinstance(thing, type) else _of_function(thing)
            known = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
            if isinstance(thing, types.FunctionType):  # a class may get other methods
                _HASHES[thing] = known
        return known
    if isinstance(thing, types.MethodType):
        return source_of(thing.__func__)
    if isinstance(thing, functools.partial):
        return source_of(thing.func)
    return "" if isinstance(thing, types.BuiltinFunctionType) else source_of(type(thing))


def _of_function(function: types.FunctionType) -> Iterator[str]:
    yield from _of_code(function.__code__)
    yield from map(_text, function.__defaults__ or ())
    yield from (f"{name}={_text(value)}" for name, value in sorted((function.__kwdefaults__ or {}).items()))


def _of_code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    for constant in code.co_consts:
        yield from _of_code(constant) if isinstance(constant, types.CodeType) else (_text(constant),)


def _of_class(cls: type) -> Iterator[str]:
    yield f"{cls.__module__}:{cls.__qualname__}"
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins", "typing", "enum", "abc"):
            continue
        for name, value in sorted(vars(base).items()):
            yield from (f"{name} {part}" for function in _functions(value) for part in _of_function(function))
        declaration = vars(base).get("__wrapper_declaration__")
        if declaration is not None:
            rules = {str(op): rule.function for op, rule in declaration.rules.items()}
            for op, rule in sorted(rules.items(), key=lambda pair: pair[0]):
                yield from (f"{op} {part}" for function in _functions(rule) for part in _of_function(function))


def _functions(value: object) -> Iterator[types.FunctionType]:
    """The functions that an attribute of a class is made of, but for those that this library generates."""
    for part in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "func", "__wrapped__"))):
        if isinstance(part, types.FunctionType) and not hasattr(part, "__source__"):
            yield part


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_text, value))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    is_plain = value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype)
    return repr(value) if is_plain else type(value).__qualname__
