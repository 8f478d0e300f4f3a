"""The fields, layout, rules and source of a class, as text."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.errors import UnknownClassError
from subclass_aot.kit.declaration import MISSING, Declaration
from subclass_aot.kit.wrapper import WrapperTensor, built_in, place_of
from subclass_aot.testing.inspection.offers import table

_GENERATED = ("__new__", "__tensor_flatten__", "__tensor_unflatten__")

_OTHERS = {
    "each": "An operator without a rule runs on every inner tensor (fallback='each').",
    "plain": "An operator without a rule runs on to_plain() (fallback='plain').",
    "error": "An operator without a rule is an error that shows what to write (fallback='error').",
}

_LAYOUT = {
    "tensor": "{0}",
    "optional": "{0}, unless absent",
    "sequence": "{0}_0, {0}_1, ...",
    "mapping": "{0}_<key>, in the order of the keys",
}


Target = tuple[type[WrapperTensor], Callable[[], torch.Tensor] | None]
"""A class, and what gives a tensor of it, if that is known."""


def find_class(target: str) -> Target:
    """Finds the class that `MODULE:CLASS` names, or that of the tensor which the function `MODULE:FUNCTION` gives.

    Args:
        target: An importable module and, after a colon, a class or a function in it; a nested one with dots.

    Returns:
        The class, and the function, or None.

    Raises:
        UnknownClassError: There is no such module, class or function, or it is no `WrapperTensor`.

    >>> find_class("subclass_aot.tensors:TwoTensor")[0].__name__
    'TwoTensor'
    """
    module_name, _, class_name = target.partition(":")
    if not (module_name and class_name):
        there = f"{target!r} is a folder" if Path(target).is_dir() else f"there is no file {target!r}"
        no_file = "" if ":" in target else f"{there}, and "
        raise UnknownClassError(
            f"{no_file}{target!r} is not of the form MODULE:CLASS, for example subclass_aot.tensors:TwoTensor"
        )
    try:
        module: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise UnknownClassError(f"cannot import the module of {target!r}: {error}") from error
    found = module
    for part in class_name.split("."):
        if not hasattr(found, part):
            known = ", ".join(sorted(name for name, value in vars(module).items() if _declares(value))) or "none"
            raise UnknownClassError(f"{module_name} has no {class_name}; WrapperTensor classes there: {known}")
        found = getattr(found, part)
    if _declares(found):
        return found, None
    given: object = None
    because = ""
    if callable(found) and not isinstance(found, type):
        try:
            given = found()
        except Exception as error:  # of the function that was named
            pass_on_interruption(error)
            because = f" Called without arguments it raises {type(error).__name__}: {error}."
    cls = type(given)
    if _declares(cls):
        return cls, found
    raise UnknownClassError(
        f"{target} is no class that derives from WrapperTensor, and no function that gives a tensor of one.{because}\n"
        "Of any other traceable wrapper, FlattenPlan.of([tensor]).source shows the layout of one tensor."
    )


def _declares(value: object) -> TypeGuard[type[WrapperTensor]]:
    return isinstance(value, type) and issubclass(value, WrapperTensor) and value is not WrapperTensor


def describe(cls: type[WrapperTensor], make: Callable[[], torch.Tensor] | None = None) -> str:
    """Describes the fields, the flat layout, the operator rules, what works, and the generated source of a class.

    Args:
        cls: The class.
        make: Gives a tensor of it, on which is tried what works.

    Returns:
        Several lines of text.
    """
    sections = {
        f"{cls.__module__}.{cls.__qualname__}": [inspect.getdoc(cls) or ""],
        "Fields": _table(_fields(cls)),
        "Flat layout": list(_layout(cls)),
        "Operators": [*_table(_rules(cls)), *_wrap(_built_in(cls)), _OTHERS[cls.__wrapper_declaration__.fallback]],
        "What works": table(cls, make),
        "Generated source": ["\n\n".join(_source(cls, name) for name in _GENERATED)],
    }
    return "\n\n".join("\n".join([title, "=" * len(title), *lines]) for title, lines in sections.items())


def _fields(cls: type[WrapperTensor]) -> Iterator[tuple[str, ...]]:
    for field in cls.__wrapper_declaration__.fields.values():
        default = "" if field.default is MISSING else f"= {field.default!r}"
        yield field.name, field.kind, inspect.formatannotation(field.annotation), default


def _layout(cls: type[WrapperTensor]) -> Iterator[str]:
    """Yields the groups of positions in the flat list, in order."""
    yield from (
        _LAYOUT[field.kind].format(field.name)
        for field in cls.__wrapper_declaration__.fields.values()
        if field.kind in _LAYOUT
    )
    yield "(the leaves of an inner tensor stand in its place where it is a wrapper itself)"
    yield "(outer sizes, then outer strides, those that are symbolic)"


def _rules(cls: type[WrapperTensor]) -> list[tuple[str, ...]]:
    """Lists the rules of the class and its bases, nearest first, each with the place where it is written."""
    found: dict[str, tuple[str, ...]] = {}
    for base in cls.__mro__:
        own: Declaration | None = vars(base).get("__wrapper_declaration__")
        for operator, rule in () if own is None else own.rules.items():
            where = f"{base.__name__}, {place_of(rule.function)}"
            found.setdefault(str(operator), (str(operator), where))
    return sorted(found.values())


def _built_in(cls: type[WrapperTensor]) -> str:
    """Lists the operators that have a built-in rule. The rules have resolved them all, so `dir` knows them."""
    if cls.__wrapper_declaration__.fallback == "each":
        return ""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if not name.startswith("__")]
    overloads = [
        getattr(packet, name) for packet in packets if hasattr(packet, "overloads") for name in packet.overloads()
    ]
    names = sorted(str(overload).removeprefix("aten.") for overload in overloads if built_in(cls, overload))
    return f"Built in: {', '.join(names)}."


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, 110, subsequent_indent="  ", break_on_hyphens=False)


def _source(cls: type[WrapperTensor], name: str) -> str:
    """Returns the text of a method, generated or written by the class's author."""
    method = inspect.unwrap(getattr(cls, name))
    text: str = getattr(method, "__source__", "") or inspect.getsource(method)
    return textwrap.dedent(text).strip()


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Puts rows into columns."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in listed]
