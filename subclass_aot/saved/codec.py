"""Values as JSON, and back: Python values, contexts of wrappers, and the frozen records of a signature.

Numbers that are whole, strings, booleans and None stand for themselves. All else is a list that begins with a word:
`["tuple", 1, 2]`. A record is its class's name and its fields in order. A file is a program, so a reader imports what
it names: it is for files that are trusted. `inspection` shows what is in others, from the JSON alone.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption
from subclass_aot.descriptors import Number
from subclass_aot.meta import Spec
from subclass_aot.saved.names import find, name_of, name_of_operator, operator_named
from subclass_aot.saved.records import RECORDS, WORDS
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.sizes import expression_of, number_of, words_of
from subclass_aot.symbols import Symbols, is_symbolic, lasting_key_of

Json = Any

_SYMBOLIC = "it is a number that depends on data, or no whole number. Compile with dynamic=False"
_TENSOR = "it is a tensor, which only graphs may hold"
_CANNOT = """{value!r:.80}, of {kind}, cannot be written.
  A file holds numbers, strings, bytes, tuples, lists, dicts, sets, slices, enums, dataclasses, named tuples, dtypes,
  devices, operators, and classes and functions of modules"""
_OTHER_STATE = "{kind} has attributes beside its fields: {names}"
_UNKNOWN = "{written!r:.80} is nothing that a file has there"

_TORCH: Mapping[str, type] = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_SEQUENCES: Mapping[str, type] = {
    "tuple": tuple, "list": list, "set": set, "frozenset": frozenset, "Size": torch.Size,
}  # fmt: skip
_FUNCTIONS = types.FunctionType | types.BuiltinFunctionType


class Encoder:
    """Writes values. Specs and descriptors are written once, and stand for themselves by their position.

    Those with symbols are written where they stand: each signature has symbols of its own.

    Attributes:
        specs: What was written of specs.
        symbols: The symbols of the signature that is written.
    """

    def __init__(self) -> None:
        self.specs: list[Json] = []
        self.symbols: Symbols | None = None
        self._position: dict[int, int] = {}
        self._kept: list[Spec] = []  # so that ids stay theirs

    def encode(self, value: object) -> Json:
        """Returns a value as what `json.dumps` takes.

        Raises:
            Refused: It cannot be written.
        """
        kind = type(value)
        if value is None or kind in (bool, str, int):
            return value
        if isinstance(value, float) and kind is float:
            return ["float", value.hex() if math.isfinite(value) else repr(value)]
        if isinstance(value, Spec):
            return ["spec", self._spec(value)] if value.solver is None else self._symbolic_spec(value)
        if isinstance(value, Number):
            number: Any = value.number
            expression, beside = _torch.how_often_beside(number)
            return ["Number", self._words(expression), beside, value.index]
        if kind in WORDS:
            return [WORDS[kind], *(self.field(value, name) for name in names_in(kind))]
        if isinstance(value, Symbols):
            return ["symbols"]
        if is_symbolic(value):
            if not isinstance(value, torch.SymInt):
                raise Refused(_SYMBOLIC)
            return ["symint", self._words(lasting_key_of(value))]
        if isinstance(value, torch.Tensor):
            raise Refused(_TENSOR)
        return self._other(value, kind)

    def field(self, value: object, name: str) -> Json:
        """Returns what a field of a record holds."""
        with at(f".{name}"):
            return self.encode(getattr(value, name))

    def _words(self, expression: object) -> Json:
        if self.symbols is None:
            raise Refused(_SYMBOLIC)
        return words_of(expression, self.symbols)

    def _symbolic_spec(self, spec: Spec) -> Json:
        numbers = [[n if type(n) is int else self._words(lasting_key_of(n)) for n in each]  # type: ignore[arg-type]
                   for each in (spec.size, spec.stride, (spec.offset,))]  # fmt: skip
        return ["symbolic spec", *numbers, *map(self.encode, (spec.dtype, spec.device, spec.layout))]

    def _spec(self, spec: Spec) -> int:
        position = self._position.get(id(spec))
        if position is None:
            written = [spec.size, spec.stride, spec.offset, *map(self.encode, (spec.dtype, spec.device, spec.layout))]
            position = self._position[id(spec)] = len(self.specs)
            self.specs.append(written)
            self._kept.append(spec)
        return position

    def _other(self, value: Any, kind: type) -> Json:
        for word, cls in _SEQUENCES.items():
            if kind is cls:
                parts = [self._part(x, i) for i, x in enumerate(value)]
                return [word, *(sorted(parts, key=repr) if word in ("set", "frozenset") else parts)]
        for word, cls in _TORCH.items():
            if kind is cls:
                return [word, str(value).removeprefix("torch.")]
        if kind in (dict, types.MappingProxyType):
            return ["dict", *([self._part(k, "a key"), self._part(v, k)] for k, v in value.items())]
        if kind is complex:
            return ["complex", self.encode(value.real), self.encode(value.imag)]
        if kind is bytes:
            return ["bytes", value.hex()]
        if kind in (slice, range):
            return [kind.__name__, *map(self.encode, (value.start, value.stop, value.step))]
        if value is ...:
            return ["..."]
        if kind is torch.device:
            return ["device", str(value)]
        return self._by_name(value, kind)

    def _by_name(self, value: Any, kind: type) -> Json:
        """Writes what has a name, or is of a class that has one."""
        if isinstance(value, Enum):
            return ["enum", name_of(kind), value.name]
        if _torch.is_overload(value):
            return ["operator", name_of_operator(value)]
        if isinstance(value, type):
            return ["class", name_of(value)]
        if isinstance(value, _FUNCTIONS):
            return ["function", name_of(value)]
        if _is_named_tuple(kind):
            return [
                "object",
                name_of(kind),
                *(self._part(x, name) for x, name in zip(value, names_in(kind), strict=True)),
            ]
        if is_dataclass(kind):
            self._refuse_other_state(value, kind)
            return ["object", name_of(kind), *(self.field(value, field.name) for field in fields(kind))]
        raise Refused(_CANNOT.format(value=value, kind=kind.__qualname__))

    def _part(self, value: object, key: object) -> Json:
        with at(f"[{key!r}]"):
            return self.encode(value)

    @staticmethod
    def _refuse_other_state(value: object, kind: type) -> None:
        others = getattr(value, "__dict__", {}).keys() - {field.name for field in fields(kind)}
        if others:
            raise Refused(_OTHER_STATE.format(kind=kind.__qualname__, names=", ".join(sorted(others))))


class Decoder:
    """Reads values.

    Args:
        specs: What an `Encoder` has written of specs.

    Attributes:
        symbols: The symbols of the signature that is read.
    """

    def __init__(self, specs: Json) -> None:
        self.symbols: Symbols | None = None
        self._numbers: dict[str, Number] = {}
        self._specs: list[Spec] = []
        self._words: dict[str, Callable[[list[Json]], Any]] = {
            **{word: functools.partial(self._sequence, cls) for word, cls in _SEQUENCES.items()},
            **{word: functools.partial(self._of_torch, cls) for word, cls in _TORCH.items()},
            "float": lambda x: _float(_one(x)),
            "complex": lambda x: complex(*map(self.decode, sized(x, 2))),
            "bytes": lambda x: bytes.fromhex(_one(x)),
            "dict": self._dict,
            "slice": lambda x: slice(*map(self.decode, sized(x, 3))),
            "range": lambda x: range(*map(self.decode, sized(x, 3))),
            "...": lambda x: ...,
            "device": lambda x: torch.device(_one(x)),
            "spec": lambda x: self._specs[_one(x)],
            "symbolic spec": self._symbolic_spec,
            "symint": lambda x: number_of(_one(x), self._symbols()),
            "Number": self._number,
            "symbols": lambda x: self._symbols(),
            "enum": self._enum,
            "operator": lambda x: operator_named(_one(x)),
            "class": lambda x: find(_one(x)),
            "function": lambda x: find(_one(x)),
            "object": self._object,
        }
        for written in specs:
            self._specs.append(self._new_spec(written))

    def decode(self, written: Json) -> Any:
        """Makes the value that was written.

        Raises:
            Refused: It is nothing that an `Encoder` writes.
        """
        if written is None or type(written) in (bool, str, int):
            return written
        if type(written) is not list or not written or type(written[0]) is not str:
            raise Refused(_UNKNOWN.format(written=written))
        word, *rest = written
        if word in RECORDS and word not in self._words:
            return self._record(RECORDS[word], rest)
        if word not in self._words:
            raise Refused(_UNKNOWN.format(written=written))
        try:
            return self._words[word](rest)
        except Refused:
            raise
        except (TypeError, ValueError, RuntimeError, LookupError, OverflowError) as error:  # of what makes the value
            pass_on_interruption(error)
            raise Refused(_UNKNOWN.format(written=written)) from error

    def _new_spec(self, written: Json) -> Spec:
        size, stride, offset, *kinds = sized(written, 6)
        return Spec.make(tuple(size), tuple(stride), offset, *map(self.decode, kinds))

    def _symbols(self) -> Symbols:
        if self.symbols is None:
            raise Refused("it has symbols, and the signature has none")
        return self.symbols

    def _number(self, written: list[Json]) -> Number:
        """Returns a number that forward gives. Two that proved to be the same are two outputs still."""
        number, beside, index = sized(written, 3)
        text = repr((number, beside))
        if text not in self._numbers:
            symbols = self._symbols()
            expression = _torch.known(symbols.env, expression_of(number, symbols))
            while Number(expression) in self._numbers.values():
                expression = _torch.beside(expression)
            self._numbers[text] = Number(expression, index)
        return self._numbers[text]

    def _symbolic_spec(self, written: list[Json]) -> Spec:
        *numbers, dtype, device, layout = sized(written, 6)
        symbols = self._symbols()
        size, stride, (offset,) = (tuple(number_of(n, symbols) for n in each) for each in numbers)
        return Spec.make(size, stride, offset, *map(self.decode, (dtype, device, layout)))

    def _record(self, cls: type, written: list[Json]) -> Any:
        names = names_in(cls)
        values = []
        for part, name in zip(sized(written, len(names)), names, strict=True):
            try:
                values.append(self.decode(part))
            except Refused as refused:  # as `at` does, which takes longer than all else here
                refused.where.insert(0, f"{cls.__name__}.{name}")
                raise
        return cls(*values)

    def _sequence(self, cls: Any, written: list[Json]) -> Any:
        return cls(list(map(self.decode, written)))

    def _of_torch(self, cls: type, written: list[Json]) -> Any:
        found = vars(torch).get(_one(written))
        if type(found) is not cls:
            raise Refused(_UNKNOWN.format(written=written))
        return found

    def _dict(self, written: list[Json]) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in written}

    def _enum(self, written: list[Json]) -> Any:
        cls, member = sized(written, 2)
        return find(cls)[member]

    def _object(self, written: list[Json]) -> Any:
        """Makes a dataclass or named tuple of its fields, without its constructor, which may want other arguments."""
        cls = find(written[0])
        parts = [self.decode(part) for part in written[1:]]
        if _is_named_tuple(cls):
            return tuple.__new__(cls, sized(parts, len(cls._fields)))
        made = object.__new__(cls)
        for field, part in zip(fields(cls), sized(parts, len(fields(cls))), strict=True):
            object.__setattr__(made, field.name, part)
        return made


def names_in(cls: Any) -> list[str]:
    """Returns the names of the fields of a record."""
    return [field.name for field in fields(cls)] if is_dataclass(cls) else list(cls._fields)


def _one(written: list[Json]) -> Json:
    return sized(written, 1)[0]


def sized(written: list[Json], count: int) -> list[Json]:
    """Checks that so many parts were written, and returns them."""
    if len(written) != count:
        raise Refused(_UNKNOWN.format(written=written))
    return written


def _float(text: str) -> float:
    return float(text) if text in ("nan", "inf", "-inf") else float.fromhex(text)


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__new__ is not tuple.__new__
