"""The parts of its arguments that a function reads, so that others make no difference to what is compiled.

Note [Arguments that are not read]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Of `def f(x, s): return x * s["scale"]` the bytecode tells that nothing of `s` is read but what stands at one key. So a
call takes that part of what is passed, a dict with one key, before anything else happens: the walk, the facts and the
guard see nothing of the rest, whatever it is and however long. An argument that the function does not name is None to
them. The function is traced on the parts, too, and cannot tell, since all it does with `s` is `s["scale"]`.

Parts are read when the call begins, and a program may change a list, a dict or an object that is passed by another way
that leads to it. So where a trace finds that lists, dicts or objects change, calls take these arguments as they are.
Tensors, modules and objects that run code when they are read are taken as they are, too.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base.bytecode import Step, Uses, uses_of
from subclass_aot.base.plain_values import Json

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call, by position and by name."""

_ABSENT = object()


class _Code(NamedTuple):
    """The code that runs when something is called, and how many of its arguments it has already."""

    code: types.CodeType
    bound: int


@dataclass(frozen=True, slots=True, eq=False)
class UsedArguments:
    """What a function reads of its arguments, for each None if that is all of it.

    Attributes:
        positional: Of those that may be passed by position.
        keywords: Of those that may be passed by name.
        rest: Of what it gets as `*args`.
        others: Of what it gets as `**kwargs`.
        runs: Returns whether a call still runs the code of which this was read.
    """

    positional: tuple[Parts | None, ...]
    keywords: Mapping[str, Parts | None]
    rest: Parts | None
    others: Parts | None
    runs: Callable[[], bool]

    @staticmethod
    def of(fn: object) -> UsedArguments | None:
        """Reads it off the code of a function, a method or a module; returns None for all else."""
        found = _code_of(fn)
        if found is None:
            return None
        code, bound = found
        uses = {name: None if each is None else Parts(each) for name, each in uses_of(code).items()}
        names = code.co_varnames
        count = code.co_argcount
        named = count + code.co_kwonlyargcount
        rest = uses[names[named]] if code.co_flags & 0x4 else None
        others = uses[names[named + bool(code.co_flags & 0x4)]] if code.co_flags & 0x8 else None
        by_name = {name: uses[name] for name in names[max(code.co_posonlyargcount, bound) : named]}
        return UsedArguments(
            tuple([uses[name] for name in names[bound:count]]), by_name, rest, others, lambda: _code_of(fn) == found
        )

    def as_json(self) -> Json:
        """Returns it as data, for a file."""
        every = (*self.positional, self.rest, self.others, *self.keywords.values())
        written = [None if parts is None else _as_json(parts.uses) for parts in every]
        return [len(self.positional), list(self.keywords), written]

    @staticmethod
    def from_json(written: Json, fn: object) -> UsedArguments:
        """Returns what a file has of it.

        Args:
            written: What `as_json` gave.
            fn: The function; None where it is not there, and nothing but what is in the file runs.
        """
        count, names, every = written
        found, parts = _code_of(fn), [*map(_parts_in, every)]
        by_name = dict(zip(names, parts[count + 2 :], strict=True))
        positional, rest, others = tuple(parts[:count]), parts[count], parts[count + 1]
        return UsedArguments(positional, by_name, rest, others, lambda: fn is None or _code_of(fn) == found)

    @property
    def takes_parts(self) -> bool:
        """Whether there is an argument of which a part is read."""
        return any(parts is not None and parts.uses for parts in (*self.positional, *self.keywords.values()))

    def without_parts(self) -> UsedArguments:
        """Returns the same where all is read of each argument of which anything is."""
        return UsedArguments(
            tuple(map(_all_or_nothing, self.positional)),
            {name: _all_or_nothing(parts) for name, parts in self.keywords.items()},
            _all_or_nothing(self.rest),
            self.others,  # the dict is made by the call, and no other way leads to it
            self.runs,
        )

    def parts_of(self, given: Given) -> Given:
        """Returns the parts of the arguments of a call that the function reads."""
        if not self.runs():
            return given
        args, kwargs = given
        own = self.positional
        found = tuple([x if parts is None else parts.of(x) for x, parts in zip(args, own, strict=False)])
        if len(args) > len(own) and (self.rest is None or self.rest.uses):
            found += args[len(own) :]
        if kwargs:
            by_name = [(name, self._part_by_name(name, x)) for name, x in kwargs.items()]
            kwargs = {name: part for name, part in by_name if part is not _ABSENT}
        return found, kwargs

    def _part_by_name(self, name: str, value: object) -> object:
        """Returns what is read of an argument that is passed by name, `_ABSENT` if not even that it is there."""
        if name not in self.keywords:
            is_read = self.others is None or any(step.key == name for step in self.others.uses)
            return value if is_read else _ABSENT
        parts = self.keywords[name]
        return value if parts is None else parts.of(value)


def _all_or_nothing(parts: Parts | None) -> Parts | None:
    return None if parts is None or parts.uses else parts


def _as_json(uses: Uses | None) -> Json:
    return None if uses is None else [[kind, key, _as_json(inside)] for (kind, key), inside in uses.items()]


def _uses_in(written: Json) -> Uses:
    return {Step(kind, key): None if inside is None else _uses_in(inside) for kind, key, inside in written}


def _parts_in(written: Json) -> Parts | None:
    return None if written is None else Parts(_uses_in(written))


def _code_of(fn: object) -> _Code | None:
    """Returns what runs when something is called with arguments, if that gets them as they are."""
    bound = 0
    if isinstance(fn, torch.nn.Module):
        cls = type(fn)
        hooks = [vars(fn).get(name) for name in _torch.modules.MODULE_HOOKS]
        if any(hooks) or any(_torch.modules.hooks_of_all) or cls.__call__ is not torch.nn.Module.__call__:
            return None
        fn = fn.forward
    if isinstance(fn, types.MethodType):
        fn, bound = fn.__func__, 1
    return _Code(fn.__code__, bound) if isinstance(fn, types.FunctionType) else None


class Parts:
    """Takes what is read of a value: another of its kind, or a namespace of attributes.

    Args:
        uses: What is read of it.
    """

    def __init__(self, uses: Uses) -> None:
        kinds = {step.kind for step in uses}
        self.uses = uses
        self._is_read = bool(uses)
        self._has_items, self._has_attributes = "attribute" not in kinds, kinds == {"attribute"}
        self._required = [step.key for step in uses if step.kind != "get"]
        self._optional = [step.key for step in uses if step.kind == "get"]
        inside = {step.key: Parts(part) for step, part in uses.items() if part is not None}
        self._inside = [(key, parts) for key, parts in inside.items() if key not in self._optional]
        numbers = [key for key in self._required if type(key) is int]
        self._is_indexed = kinds == {"item"} and len(numbers) == len(uses)
        self._from_begin, self._from_end = max([0, *(k + 1 for k in numbers)]), max([0, *(-k for k in numbers)])

    def of(self, value: object) -> object:
        """Returns the part of a value that is read; None where that is nothing.

        Args:
            value: The value. A tensor is returned as it is, and so is what is read as a whole.
        """
        if isinstance(value, torch.Tensor):
            return value
        if not self._is_read:
            return None
        cls = type(value)
        if self._has_items and cls in (dict, OrderedDict, defaultdict):
            return self._of_mapping(value)
        if self._is_indexed and cls in (list, tuple):
            return self._of_sequence(value)
        if self._has_attributes and cls.__getattribute__ in _READ_ATTRIBUTES and not isinstance(value, torch.nn.Module):
            return self._of_object(value)
        return value

    def _of_mapping(self, value: Any) -> object:
        found: dict[object, object] = {}
        for key in self._required:
            if key not in value:  # the function itself fails, or gets a default
                return value
            found[key] = value[key]
        for key in self._optional:
            if key in value:
                found[key] = value[key]
        for key, parts in self._inside:
            found[key] = parts.of(found[key])
        is_all = len(found) == len(value) and all(part is value[key] for key, part in found.items())
        return value if is_all else found

    def _of_sequence(self, value: Any) -> object:
        """Returns a sequence that is as long as it must be, with None at places that are not read."""
        length = len(value)
        if self._from_begin > length or self._from_end > length:  # the function itself fails
            return value
        found: list[object] = [None] * min(length, self._from_begin + self._from_end)
        for index in self._required:
            found[index] = value[index]  # type: ignore[index]
        for key, parts in self._inside:
            found[key] = parts.of(found[key])  # type: ignore[index]
        if len(found) == length and all(part is x for part, x in zip(found, value, strict=True)):
            return value
        return found if type(value) is list else tuple(found)

    def _of_object(self, value: object) -> object:
        """Returns a namespace of what is read of an object, if its attributes are read without running code."""
        held = getattr(value, "__dict__", {})
        found: dict[Any, object] = {}
        for name in map(str, self._required):
            for base in type(value).__mro__:
                if name in base.__dict__:
                    found[name] = _attribute(value, held, name, base.__dict__[name])
                    break
            else:
                found[name] = held.get(name, _ABSENT)
            if found[name] is _ABSENT:
                return value
        own = [*found.values()]
        for key, parts in self._inside:
            found[key] = parts.of(found[key])
        is_all = len(found) == (len(value) if isinstance(value, tuple) else len(held))
        if is_all and all(part is x for part, x in zip(found.values(), own, strict=True)):
            return value
        return types.SimpleNamespace(**found)


_READ_ATTRIBUTES: frozenset[object] = frozenset(
    cls.__getattribute__ for cls in (object, types.SimpleNamespace, tuple, dict, OrderedDict, list)
)
"""Where a class has one of these, attributes are read as Python reads them."""


class _Pair(NamedTuple):
    first: int


_FIELDS: tuple[type, ...] = types.MemberDescriptorType, type(vars(_Pair)["first"])
"""Classes of what a class has by the name of a slot, or of a field of a named tuple."""


def _attribute(value: object, held: Mapping[str, object], name: str, of_class: object) -> object:
    """Returns an attribute that an object holds itself, `_ABSENT` where reading it runs code or finds nothing.

    Args:
        value: The object.
        held: Its `__dict__`.
        name: The name.
        of_class: What its class has by that name.
    """
    if isinstance(of_class, _FIELDS):
        return getattr(value, name, _ABSENT)
    runs_code = hasattr(type(of_class), "__set__") or hasattr(type(of_class), "__delete__")
    return _ABSENT if runs_code else held.get(name, _ABSENT)
