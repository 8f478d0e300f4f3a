"""Calls of `int`, `float` and `range` on symbolic numbers: `x[: int(n * 0.5)]`.

Note [Calls of classes of numbers]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
What `int(n)` gives is a number of Python, whatever `__int__` of a symbol does. So the trace would assume this number,
and the program be compiled for each: a function of torch (`torch.sym_int`) gives a symbol instead. The name `int` must
stay what it is, since programs compare classes (`type(n) is int`, `dtype=int`). So it is the call that is another one,
in the code of functions that were seen to make it on a symbol:

    x[: int(n * 0.5)]    LOAD_GLOBAL (NULL + int)  ->  PUSH_NULL, LOAD_CONST (whole number of)

Such functions are found when their code asks a symbol for its number. The trace goes on with the number. When the
function has run, the trace begins again, and these functions have the other code in it and in all later traces. At the
end of each they have their own. They are searched for at the end, since in a trace the collector has no list of them.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.bytecode import calls_of, number_of_arguments, with_calls_of_others
from subclass_aot.base.left_alone import left_alone
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.base.tricks import is_on
from subclass_aot.subjects.numbers.ranges import numbers_in_range
from subclass_aot.subjects.numbers.text import is_of_program

_PLACES: list[tuple[Any, str]] = [
    (torch.SymInt, "__int__"),
    (torch.SymInt, "__index__"),  # by which `float` and `range` read it
    (torch.SymFloat, "__int__"),
    (torch.SymFloat, "__float__"),
]


def _with_symbols(pythons: Callable[..., Any], of_symbols: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns what does as a class of numbers does, and gives a symbol for a symbol."""

    def call(*args: object, **kwargs: object) -> Any:
        is_symbol = len(args) == 1 and not kwargs and _is_known(args[0])
        return of_symbols(args[0]) if is_symbol else pythons(*args, **kwargs)

    return call


def _is_known(number: object) -> bool:
    """Returns whether a number is a symbol of which nothing is to be read.

    Data may decide that a float is NaN, which has no whole part, or zero, whose sign is lost where that is assumed.
    """
    if type(number) is torch.SymInt:
        return not _torch.wrappers.is_nested_int(number)
    return type(number) is torch.SymFloat and _torch.symbolic.has_example(number)


_OTHERS: dict[str, Callable[..., Any]] = {
    "int": _with_symbols(int, torch.sym_int),
    "float": _with_symbols(float, torch.sym_float),
    "range": numbers_in_range,
}
_calling: weakref.WeakSet[FunctionType] = weakref.WeakSet()
"""The functions whose code calls these on symbols, itself or in a function inside."""


_in_vain: weakref.WeakValueDictionary[int, CodeType] = weakref.WeakValueDictionary()
"""Code that makes such calls, and of which no function was found; by its id, since code may have no hash."""

_met: ContextVar[dict[int, CodeType] | None] = ContextVar("met", default=None)
"""The code that makes such calls in the trace that runs, by its id: code is equal to other code."""


@contextmanager
def functions_become_known() -> Iterator[None]:
    """Runs a trace, after which the functions are known that were met there."""
    codes: dict[int, CodeType] = {}
    with PutBack(partial(_met.set, _met.get())), PutBack(partial(_note_functions, codes)):
        _met.set(codes)
        yield


def were_met() -> bool:
    """Returns whether the trace that runs has met functions that call these on a symbol, and have not the
    other code.
    """
    return bool(_met.get())


@contextmanager
def calls_give_symbols() -> Iterator[None]:
    """Runs the block so that `int(n)` and `float(n)` of a symbol are symbols in the functions that are known, and
    others are met. See Note [Calls of classes of numbers].
    """
    if not is_on("calls of int"):
        yield
        return
    functions = [(f, f.__code__) for f in list(_calling)]
    with PutBack(attributes_put_back(_PLACES)), PutBack(partial(_put_back, functions)):
        for cls, name in _PLACES:
            setattr(cls, name, _noting(getattr(cls, name)))
        for function, code in functions:
            function.__code__ = with_calls_of_others(code, _of_builtins(function.__globals__))
        yield


def _put_back(functions: list[tuple[FunctionType, CodeType]]) -> None:
    for function, code in functions:
        function.__code__ = code


def _of_builtins(names: dict[str, object]) -> dict[str, Callable[..., Any]]:
    """Returns those for which a module has no other function."""
    return {
        name: other for name, other in _OTHERS.items() if names.get(name, vars(builtins)[name]) is vars(builtins)[name]
    }


def _noting(torchs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(number: object) -> Any:
        frame, met = sys._getframe(1), _met.get()
        if met is not None and is_of_program(frame):
            code = frame.f_code
            if id(code) not in met and id(code) not in _in_vain and _is_call(frame):
                met[id(code)] = code
        return torchs(number)

    return method


def _is_call(frame: FrameType) -> bool:
    """Returns whether a frame calls one of these, or has `map` call it."""
    code = frame.f_code
    calls = calls_of(code, frozenset(_of_builtins(frame.f_globals)))
    if not calls or any(call.by_map for call in calls):
        return bool(calls)
    starts = [(line, column) for line, _, column, _ in code.co_positions()]
    call = starts[frame.f_lasti // 2]
    names = {each.name for each in calls if None in call or starts[each.offset // 2] == call}  # None: nobody can tell
    return bool(names) and (names != {"range"} or number_of_arguments(code, frame.f_lasti) > 1)  # `range(n)` needs `n`


def _note_functions(codes: dict[int, CodeType]) -> None:
    """Notes the functions that have some code, or define a function that has it."""
    if not codes:
        return
    files, found = {code.co_filename for code in codes.values()}, set()
    listed = (each for each in gc.get_objects() if type(each) is FunctionType)
    for each in itertools.chain(listed, left_alone(FunctionType)):
        if each.__code__.co_filename in files and each not in _calling:
            inside = codes.keys() & set(map(id, _codes_in(each.__code__)))
            if inside:
                _calling.add(each)
                found |= inside
    _in_vain.update({key: code for key, code in codes.items() if key not in found})
    codes.clear()  # a signal may come, and this be called again


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if type(part) is CodeType:
            yield from _codes_in(part)
