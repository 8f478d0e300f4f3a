"""Reads what functions do from their bytecode: the one file that knows instructions of CPython 3.11 to 3.13.

Whoever asks has a way that is right without an answer, and is slower or refuses: so an instruction that is not known
here means "something else". With a new Python, run `tests/base/test_bytecode.py`.
"""

from __future__ import annotations

import dis
import functools
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from subclass_aot.base.tricks import is_on

P = ParamSpec("P")
T = TypeVar("T")

_STORES = frozenset("STORE_GLOBAL DELETE_GLOBAL STORE_DEREF DELETE_DEREF DELETE_SUBSCR DELETE_ATTR".split())
"""Instructions that change what may outlive the call."""

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL")
"""Instructions that name a global. In the body of a class, a name is one of the class or a global."""

_BETWEEN = ("CACHE", "EXTENDED_ARG", "PUSH_NULL", "NOP")
"""What may stand between the load of a global and that of its attribute."""

_LOADS = frozenset("LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_BORROW".split())
_OF_ONE_LOCAL = re.compile("(?:LOAD|STORE)_FAST(?:_BORROW)?")

_STRANGE_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x200  # *args, **kwargs, and three kinds of generators
_STRANGE_STEPS = ("STORE_", "DELETE_", "IMPORT_", "MAKE_", "LOAD_NAME")

_PUTS_TOGETHER = frozenset(
    "RESUME NOP CACHE COPY SWAP POP_TOP LOAD_CONST RETURN_CONST RETURN_VALUE LOAD_FAST LOAD_FAST_CHECK "
    "LOAD_FAST_BORROW LOAD_SMALL_INT LOAD_ATTR BUILD_LIST BUILD_TUPLE BUILD_MAP BUILD_CONST_KEY_MAP LIST_EXTEND "
    "LIST_APPEND".split()
)
"""Instructions of a function that puts constants and attributes together, and calls nothing."""


def cached_by_code(of_code: Callable[P, T]) -> Callable[P, T]:
    """Keeps what a function says of code. Dynamo makes some that has no hash, of which nothing is kept."""
    kept: Any = functools.lru_cache(maxsize=4096)(of_code)

    @functools.wraps(of_code)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return kept(*args, **kwargs)  # type: ignore[no-any-return]
        except TypeError:
            return of_code(*args, **kwargs)

    return call


def _steps_of(code: types.CodeType) -> list[dis.Instruction]:
    """Returns the instructions of a function, each of one local: Python 3.13 has some that load or store two."""
    found = []
    for step in dis.get_instructions(code):
        if "_FAST_" in step.opname and isinstance(step.argval, tuple):
            names = _OF_ONE_LOCAL.findall(step.opname)
            found += [step._replace(opname=name, argval=x) for name, x in zip(names, step.argval, strict=True)]
        elif step.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            found.append(step)
    return found


@cached_by_code
def attributes_read(code: types.CodeType) -> tuple[str, ...] | None:
    """Returns the attributes of its first argument that a function reads; None if it does anything else."""
    if code.co_argcount != 1 or code.co_kwonlyargcount or not is_on("bytecode"):
        return None
    read, before = [], ""
    for step in dis.get_instructions(code):
        if step.opname not in _PUTS_TOGETHER:
            return None
        if step.opname == "LOAD_ATTR":
            if before != code.co_varnames[0]:
                return None
            read.append(step.argval)
        before = step.argval if step.opname.startswith("LOAD_FAST") else ""
    return tuple(dict.fromkeys(read))


def only_appends(code: types.CodeType, name: str) -> bool:
    """Returns whether a function, and those inside it, use the value of a name in `name.append(...)` alone."""
    if not is_on("bytecode"):
        return False
    # After the load of a name comes that of its attribute. What is left out makes cells, or is no instruction.
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "COPY_FREE_VARS", "MAKE_CELL")]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.argval == name and step.opname.endswith(("DEREF", "GLOBAL", "GLOBALS", "NAME")):
            loads = step.opname in ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
            if not (loads and after is not None and after.argval in ("append", "extend")):
                return False
    return all(only_appends(c, name) for c in code.co_consts if isinstance(c, types.CodeType))


def names_in(code: types.CodeType) -> Iterable[str]:
    """Returns the names of globals and of attributes in a function, and in those inside it."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(names_in(constant))
    return names


def named_globals(code: types.CodeType) -> Iterable[str]:
    """Returns the names that a function, or one inside it, looks up, assigns or deletes among its globals."""
    return _stored(code, _GLOBALS) if is_on("bytecode") else names_in(code)


def attributes_of_global(code: types.CodeType, name: str) -> Iterable[str]:
    """Returns the attributes of a global that a function, or one inside it, names: all that it names, if it does
    something else with the global.
    """
    found = _attributes_after(code, name) if is_on("bytecode") else None
    return names_in(code) if found is None else found


@cached_by_code
def _attributes_after(code: types.CodeType, name: str) -> tuple[str, ...] | None:
    steps = [step for step in dis.get_instructions(code) if step.opname not in _BETWEEN]
    found: list[str] = []
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.opname in _GLOBALS and step.argval == name:
            if after is None or not after.opname.endswith(("_ATTR", "LOAD_METHOD")):
                return None
            found.append(after.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inside = _attributes_after(constant, name)
            if inside is None:
                return None
            found += inside
    return tuple(dict.fromkeys(found))


def stored_globals(code: types.CodeType) -> Iterable[str]:
    """Returns the globals that a function, or one inside it, assigns or deletes; they need not be there before."""
    return _stored(code, ("STORE_GLOBAL", "DELETE_GLOBAL")) if is_on("bytecode") else names_in(code)


def stored_attributes(code: types.CodeType) -> Iterable[str]:
    """Returns the attributes that a function, or one inside it, assigns or deletes, of whatever has them."""
    return _stored(code, ("STORE_ATTR", "DELETE_ATTR")) if is_on("bytecode") else names_in(code)


@cached_by_code
def _stored(code: types.CodeType, instructions: tuple[str, ...]) -> tuple[str, ...]:
    found = [step.argval for step in dis.get_instructions(code) if step.opname in instructions]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _stored(constant, instructions)
    return tuple(found)


class Read(NamedTuple):
    """The names and constants that a function reads.

    Attributes:
        globals: Names of its module.
        attributes: Attributes, of whatever has them.
    """

    globals: frozenset[str]
    attributes: frozenset[str]


def reads_of(code: types.CodeType) -> Read | None:
    """Returns what a function of one argument reads; None if it may do more than compute of that.

    It stores nothing but locals, makes no functions, catches no errors, and does not ask whether two values are one.
    """
    if code.co_argcount != 1 or code.co_kwonlyargcount or code.co_flags & _STRANGE_FLAGS or code.co_cellvars:
        return None
    if not is_on("bytecode"):
        return None
    if code.co_exceptiontable or any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return None
    steps = list(dis.get_instructions(code))
    if any(step.opname.startswith(_STRANGE_STEPS) and "_FAST" not in step.opname for step in steps):
        return None
    compared_with = [before.opname for before, step in zip(steps, steps[1:], strict=False) if step.opname == "IS_OP"]
    if any(name != "LOAD_CONST" for name in compared_with):
        return None
    from_outside = frozenset(step.argval for step in steps if step.opname == "LOAD_GLOBAL")
    read = frozenset(step.argval for step in steps if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")))
    return Read(from_outside, read) if from_outside | read >= {*code.co_names} else None


class Stored(NamedTuple):
    """The effects of a function on what is not its own.

    Attributes:
        others: What it stores elsewhere, in words.
        set_attributes: Attributes that it sets of what it has just made, or of `self`.
        read: Globals that it reads, without constants: names in capitals.
    """

    others: list[str]
    set_attributes: list[str]
    read: list[str]


@cached_by_code
def stores_of(code: types.CodeType) -> Stored:
    """Returns what a function stores, and reads of globals."""
    if not is_on("bytecode"):
        return Stored([f"{code.co_name} is not read"], [], [])
    steps, parameters = _steps_of(code), _parameters(code)
    containers = _made_by(steps, "BUILD_MAP", "BUILD_LIST").difference(parameters)
    tensors = _made_by(steps, "CALL").difference(parameters) | {name for name in code.co_varnames[:1] if name == "self"}
    others, set_attributes, read = [], [], []
    for i, step in enumerate(steps):
        if step.opname in _STORES and step.argval not in code.co_cellvars:  # its own, which functions inside it read
            others.append(f"{code.co_name} has {step.opname} {step.argrepr}".rstrip())
        elif step.opname == "STORE_SLICE" or step.opname == "STORE_SUBSCR" and _loaded(steps[i - 2]) not in containers:
            others.append(f"{code.co_name} sets an element of something else")
        elif step.opname == "STORE_ATTR" and _loaded(steps[i - 1]) not in tensors:
            others.append(f"{code.co_name} sets {step.argval} of something else")
        elif step.opname == "STORE_ATTR":
            set_attributes.append(step.argval)
        elif step.opname == "LOAD_GLOBAL" and not step.argval.isupper():  # capitals: a constant
            read.append(step.argval)
    return Stored(others, set_attributes, read)


class Step(NamedTuple):
    """A step from a value to a part of it.

    Attributes:
        kind: "item" for `value[key]`, "get" for `value.get(key)` and `key in value`, "attribute" for `value.key`.
        key: The key, a constant.
    """

    kind: str
    key: str | int


Uses = dict[Step, Any]
"""The parts of a value that a function reads, each with the parts of it that are read, or None for all of it.

Nothing is read of a value without any.
"""

_ASKS_FOR_LOCALS = frozenset("locals vars dir eval exec super breakpoint _getframe currentframe f_locals stack".split())
"""Names by which a function may read arguments that it does not name."""

_RUNS_LATER = 0x20 | 0x80 | 0x200
"""The flags of generators and coroutines."""

_CONSTANTS = frozenset(("LOAD_CONST", "LOAD_SMALL_INT"))
_END: Any = dis.Instruction(*[""] * len(dis.Instruction._fields))  # type: ignore[arg-type]  # stands after the last


@cached_by_code
def uses_of(code: types.CodeType) -> Mapping[str, Uses | None]:
    """Returns the parts of each argument that a function reads, where it names them by constants; None for all of it.

    Names are those of its parameters, those of `*args` and `**kwargs` included.
    """
    found: dict[str, Uses | None] = dict.fromkeys(_parameters(code))
    if not is_on("bytecode") or code.co_flags & _RUNS_LATER or not _ASKS_FOR_LOCALS.isdisjoint(names_in(code)):
        return found
    steps = _steps_of(code)
    found.update({name: {} for name in found if name not in code.co_cellvars})
    for i, step in enumerate(steps):
        uses = found.get(step.argval) if "_FAST" in step.opname else None
        if uses is not None:
            path = _path_from(steps, i) if step.opname in _LOADS else ()
            found[step.argval] = _with_path(uses, path) if path else None
    return found


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    """Returns the names of the parameters of a function, those of `*args` and `**kwargs` included."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
    return code.co_varnames[:count]


def _path_from(steps: list[dis.Instruction], at: int) -> tuple[Step, ...]:
    """Returns how a function goes on from a local that an instruction loads; nothing if it uses the value itself."""
    path = []
    before, is_target = steps[at - 1], steps[at].is_jump_target
    while True:
        one, two, three, four = [*steps[at + 1 : at + 5], _END, _END, _END, _END][:4]
        if _is_key(one) and (two.opname == "BINARY_SUBSCR" or two.argrepr == "[]"):
            path.append(Step("item", one.argval))
            at += 2
        elif one.opname == "LOAD_ATTR" and one.argrepr == one.argval:  # else it is the load of a method
            path.append(Step("attribute", one.argval))
            at += 1
        else:
            break
    if one.argval == "get" and one.opname in ("LOAD_METHOD", "LOAD_ATTR") and _is_key(two):
        called = three if three.opname == "CALL" else four if three.opname in _CONSTANTS else _END
        if called.opname == "CALL" and called.arg == 1 + (called is four):
            path.append(Step("get", two.argval))
    elif one.opname == "CONTAINS_OP" and not path and _is_key(before) and not is_target:
        path.append(Step("get", before.argval))
    return tuple(path)


def _is_key(step: dis.Instruction) -> bool:
    return step.opname in _CONSTANTS and type(step.argval) in (str, int)


def _with_path(uses: Uses, path: tuple[Step, ...]) -> Uses:
    """Adds a part to those that are read."""
    inside = uses
    for step in path[:-1]:
        if inside.setdefault(step, {}) is None:
            return uses
        inside = inside[step]
    inside[path[-1]] = None
    return uses


def is_raise_statement(code: types.CodeType, offset: int) -> bool:
    """Returns whether the instruction at an offset is of a `raise` or `assert`, and no call that raised."""
    return code.co_code[offset] == dis.opmap["RAISE_VARARGS"]


def _loaded(step: dis.Instruction) -> str:
    """Returns the local that an instruction puts on top of the stack; "" if it does something else."""
    return step.argval if step.opname in _LOADS else ""


def _made_by(steps: list[dis.Instruction], *names: str) -> set[str]:
    """Returns the locals that only ever hold what instructions whose names begin so have just made."""
    stores = [
        (step.argval, before.opname.startswith(names) and not step.is_jump_target)
        for before, step in zip(steps, steps[1:], strict=False)
        if step.opname.startswith("STORE_FAST")
    ]
    return {name for name, _ in stores} - {name for name, made in stores if not made}


class CallOf(NamedTuple):
    """Says where a function calls a global, as in `int(n)`, or has `map` call it, as in `map(int, sizes)`.

    Attributes:
        offset: The offset of the load of the global.
        name: Its name.
        by_map: Whether `map` calls it.
    """

    offset: int
    name: str
    by_map: bool


_ITERATED = frozenset(("range",))
"""Names of which only those calls count whose result a loop goes through, and nobody keeps."""


@cached_by_code
def calls_of(code: types.CodeType, names: frozenset[str]) -> tuple[CallOf, ...]:
    """Returns where a function calls globals of some names; `range` where a loop goes through it: `for i in range(n)`.

    Functions inside it are left out.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
    found = []
    for i, step in enumerate(steps):
        if step.opname == "LOAD_GLOBAL" and step.argval in names:
            is_called, by_map = bool(step.arg and step.arg & 1), i > 0 and _is_call_of_map(steps[i - 1])
            if step.argval in _ITERATED:
                is_called, by_map = is_called and _is_iterated(steps, i), False
            if is_called or by_map:
                found.append(CallOf(step.offset, step.argval, by_map))
    return tuple(found)


def _is_iterated(steps: list[dis.Instruction], at: int) -> bool:
    """Returns whether a loop goes through what the function gives that an instruction loads."""
    start = _begins(steps[at])
    for step, after in zip(steps[at + 1 :], steps[at + 2 :], strict=False):
        if step.opname == "CALL" and _begins(step) == start:
            return after.opname == "GET_ITER" and None not in start
    return False


def _begins(step: dis.Instruction) -> tuple[int | None, int | None]:
    """Returns the line and the column where an expression begins; None where that is left out of the code."""
    found: Any = step.positions or (None,) * 4
    return found[0], found[2]


def _is_call_of_map(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_GLOBAL" and step.argval == "map" and bool(step.arg and step.arg & 1)


def with_calls_of_others(code: types.CodeType, others: Mapping[str, object]) -> types.CodeType:
    """Returns code that calls other functions where it calls globals of these names: see `calls_of`.

    Functions inside it do so, too. Instructions stand where they stood, so lines and handlers of errors are the same.

    Args:
        code: The code of a function.
        others: What is called, by name.
    """
    inside = [with_calls_of_others(x, others) if isinstance(x, types.CodeType) else x for x in code.co_consts]
    found = calls_of(code, frozenset(others))
    if not found and all(x is y for x, y in zip(inside, code.co_consts, strict=True)):
        return code
    written, constants = bytearray(code.co_code), inside + list(others.values())
    places = {name: len(inside) + i for i, name in enumerate(others)}
    for offset, name, is_given in found:
        start = offset
        while start >= 2 and written[start - 2] == dis.opmap["EXTENDED_ARG"]:
            start -= 2
        end = offset + 2
        while end < len(written) and written[end] == dis.opmap["CACHE"]:
            end += 2
        load = _load_of_constant(places[name], is_given)
        written[start:end] = load + bytes([dis.opmap["NOP"], 0]) * ((end - start - len(load)) // 2)
    return code.replace(co_code=bytes(written), co_consts=tuple(constants))


def _load_of_constant(index: int, is_given: bool) -> bytes:
    """Returns instructions that load a constant, in a place where it is called or is an argument."""
    load = bytes([dis.opmap["EXTENDED_ARG"], index >> 8, dis.opmap["LOAD_CONST"], index & 255])
    null = b"" if is_given else bytes([dis.opmap["PUSH_NULL"], 0])
    return load + null if sys.version_info >= (3, 13) else null + load


def number_of_arguments(code: types.CodeType, offset: int) -> int:
    """Returns how many arguments the call at an offset has; 255 and more may be any number."""
    return code.co_code[offset + 1]
