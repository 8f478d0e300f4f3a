"""Python values as JSON, and back: contexts of wrappers, in files of weights and of compiled functions.

Strings, booleans, None, whole and finite numbers stand for themselves, and a list for a tuple. All else is an object
whose first key says what it is: `{"dtype": "float32"}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, ClassVar

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.named import full_name
from subclass_aot.base.refused import Refused, at

Json = Any

_UNKNOWN = "was written as {written!r:.200}, which no context value is"

_TORCH: Mapping[type, str] = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
_SEQUENCES: Mapping[type, str] = {list: "list", torch.Size: "Size", frozenset: "frozenset", set: "set"}


class ValueWriter:
    """Writes values. Who writes more kinds of them derives a class.

    Attributes:
        name_of: Gives the name by which a reader finds a class.
        cannot: What is said of a value that cannot be written.
    """

    name_of: Callable[[Any], str] = staticmethod(full_name)
    cannot: ClassVar[str]

    def write(self, value: object) -> Json:
        """Returns a value as what `json.dumps` takes.

        Raises:
            Refused: It cannot be written.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if isinstance(value, tuple) and kind is tuple:
            return [self.part(x, f"[{i}]") for i, x in enumerate(value)]
        if isinstance(value, float) and kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, list | torch.Size) and kind in _SEQUENCES:
            return {_SEQUENCES[kind]: [self.part(x, f"[{i}]") for i, x in enumerate(value)]}
        if isinstance(value, set | frozenset) and kind in _SEQUENCES:
            return {_SEQUENCES[kind]: sorted((self.part(x, ": an element") for x in value), key=repr)}
        if isinstance(value, dict) and kind is dict:
            return {"dict": [[self.part(k, ": a key"), self.part(v, f"[{k!r}]")] for k, v in value.items()]}
        if kind in _TORCH:
            return {_TORCH[kind]: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, Enum):
            return {"enum": self.name_of(kind), "member": value.name}
        if is_dataclass(kind) or is_named_tuple(kind):
            held = {name: self.part(getattr(value, name), f".{name}") for name in self.names_in(value)}
            return {"class": self.name_of(kind), "fields": held}
        raise Refused(self.cannot.format(value=value, kind=kind.__qualname__))

    def part(self, value: object, step: str) -> Json:
        """Writes what stands at a step inside of another value."""
        with at(step):
            return self.write(value)

    def names_in(self, value: Any) -> list[str]:
        """Returns the names of what is written of a dataclass or a named tuple: what its constructor takes."""
        return [each.name for each in fields(value) if each.init] if is_dataclass(value) else list(value._fields)


def _sequence(cls: type, reader: ValueReader, written: Json) -> Any:
    return cls(map(reader.read, written))


def _of_torch(cls: type, reader: ValueReader, name: str) -> Any:
    found = getattr(torch, name)
    if type(found) is not cls:
        raise Refused(_UNKNOWN.format(written=name))
    return found


class ValueReader:
    """Reads what a `ValueWriter` has written.

    Attributes:
        makers: What makes a value of what stands beside its word.
        find: Finds a class by its name, or refuses to.
    """

    find: Callable[[str], Any]

    makers: ClassVar[dict[str, Callable[[Any, Json], Any]]] = {
        **{word: partial(_sequence, cls) for cls, word in _SEQUENCES.items()},
        **{word: partial(_of_torch, cls) for cls, word in _TORCH.items()},
        "float": lambda self, x: float(x),
        "dict": lambda self, x: {self.read(key): self.read(value) for key, value in x},
        "device": lambda self, x: torch.device(x),
    }

    def read(self, written: Json) -> Any:
        """Makes the value that was written.

        Raises:
            Refused: It is nothing that such a writer writes, or names a class that is not there.
        """
        if type(written) is list:
            return tuple(map(self.read, written))
        if type(written) is not dict:
            return written
        word = next(iter(written), "")
        try:
            if word == "enum":
                return self._class(written[word], Enum)[written["member"]]
            if word == "class":
                cls, held = self._class(written[word]), {}
                for name, part in written["fields"].items():
                    with at(f".{name}"):
                        held[name] = self.read(part)
                return self.made(cls, held)
            if word in self.makers:
                return self.makers[word](self, written[word])
        except Refused:
            raise
        except Exception as error:  # of what makes the value: an enum, a dataclass, torch
            pass_on_interruption(error)
            raise Refused(f"cannot be made of {written!r:.200}: {error}") from error
        raise Refused(_UNKNOWN.format(written=written))

    def made(self, cls: type, held: dict[str, Any]) -> Any:
        """Makes a dataclass or a named tuple of what it holds."""
        return cls(**held)

    def _class(self, name: str, base: type = object) -> Any:
        """Finds a class, if it is of a kind that is written: no file makes instances of others."""
        cls = self.find(str(name))
        if not isinstance(cls, type) or not (issubclass(cls, base) if base is Enum else _has_fields(cls)):
            raise TypeError(f"{name.rpartition(':')[2]} is no {'enum' if base is Enum else 'dataclass or named tuple'}")
        return cls


def _has_fields(cls: type) -> bool:
    return is_dataclass(cls) or is_named_tuple(cls)


def is_named_tuple(cls: type) -> bool:
    """Returns whether `cls` is a tuple whose elements have names."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def frozen(value: object) -> Any:
    """Returns a value with tuples for lists, as JSON has no tuples.

    >>> frozen(["a", [1, (2, [])]])
    ('a', (1, (2, ())))
    """
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value
