"""Context values as JSON, and back.

Numbers, strings, booleans, None stand for themselves and a list for a tuple. All else is an object with one key that
says what it is: `{"dtype": "float32"}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import torch

from subclass_aot._stack import pass_on_interruption
from subclass_aot.errors import StateDictError
from subclass_aot.files.classes import KnownClasses, is_named_tuple, names_in
from subclass_aot.named import full_name

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def to_json(value: object, place: str) -> Json:
    """Returns a context value as what `json.dumps` takes.

    Args:
        value: The value.
        place: Where it stands, for errors: `weight`, context `bits`.

    Raises:
        StateDictError: It cannot be written.
    """
    if isinstance(value, Enum):
        return {"enum": full_name(type(value)), "member": value.name}
    if value is None or type(value) in (bool, int, str):
        return value  # type: ignore[return-value]
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) in _TORCH.values():
        return {next(kind for kind, of in _TORCH.items() if of is type(value)): str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if type(value) is tuple:
        return [to_json(element, f"{place}[{i}]") for i, element in enumerate(value)]
    if isinstance(value, list | torch.Size) and type(value) in (list, torch.Size):
        kind = "list" if type(value) is list else "Size"
        return {kind: [to_json(element, f"{place}[{i}]") for i, element in enumerate(value)]}
    if type(value) is frozenset:
        return {"frozenset": sorted((to_json(element, f"{place}: an element") for element in value), key=repr)}
    if type(value) is dict:
        return {
            "dict": [[to_json(key, f"{place}: a key"), to_json(v, f"{place}[{key!r}]")] for key, v in value.items()]
        }
    if not isinstance(value, type) and (is_dataclass(value) or is_named_tuple(type(value))):
        held = {name: to_json(getattr(value, name), f"{place}.{name}") for name in names_in(type(value))}
        return {"class": full_name(type(value)), "fields": held}
    raise StateDictError(
        f"{place} is a {type(value).__name__}, which a file cannot hold: {value!r:.200}\n"
        "A context can be written if it is made of int, float, bool, str, None, tuples, lists, dicts, frozensets, "
        "enums, dataclasses, torch.dtype, torch.layout, torch.memory_format, torch.Size and torch.device. Write what "
        "the value is made of, as a frozen dataclass, or hold a tensor as a field: name: torch.Tensor"
    )


def from_json(written: Json, place: str, classes: KnownClasses, of: type) -> Any:
    """Returns the inverse of `to_json`.

    Args:
        written: What a file has.
        place: Where the value stands, for errors.
        classes: The classes that may be named.
        of: The class of wrappers in whose context it stands.

    Raises:
        StateDictError: It is nothing that `to_json` writes, or it names a class that nobody knows.
    """
    if isinstance(written, list):
        return tuple(from_json(element, f"{place}[{i}]", classes, of) for i, element in enumerate(written))
    if not isinstance(written, dict):
        return written
    kind = next(iter(written), "")
    try:
        if kind == "enum":
            return _checked(classes.of_context(str(written["enum"]), of, place), Enum)[written["member"]]
        if kind == "class":
            cls = _checked(classes.of_context(str(written["class"]), of, place))
            held: Any = written["fields"]
            return cls(**{name: from_json(v, f"{place}.{name}", classes, of) for name, v in held.items()})
        if kind == "dict":
            pairs = [from_json(pair, place, classes, of) for pair in written["dict"]]  # type: ignore[union-attr]
            return dict(pairs)
        if kind in _OF_ELEMENTS:
            return _OF_ELEMENTS[kind](from_json(written[kind], place, classes, of))
        if kind in _TORCH:
            found = getattr(torch, str(written[kind]))
            if type(found) is _TORCH[kind]:
                return found
        if kind in _OF_TEXT:
            return _OF_TEXT[kind](written[kind])
    except StateDictError:
        raise
    except Exception as error:  # of an enum or a dataclass
        pass_on_interruption(error)
        raise StateDictError(f"{place} cannot be made of {written!r:.200}: {error}") from error
    raise StateDictError(f"{place} was written as {written!r:.200}, which no context value is")


def _checked(cls: type, base: type = object) -> Any:
    """Returns `cls`, if it is a kind of class that `to_json` writes: no file makes instances of others."""
    if not issubclass(cls, base) or base is object and not (is_dataclass(cls) or is_named_tuple(cls)):
        raise TypeError(f"{cls.__name__} is no {'enum' if base is Enum else 'dataclass or named tuple'}")
    return cls


_TORCH: Mapping[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}

_OF_ELEMENTS: Mapping[str, Callable[..., object]] = {"list": list, "Size": torch.Size, "frozenset": frozenset}

_OF_TEXT: Mapping[str, Callable[..., object]] = {"float": float, "device": torch.device}
