"""Values of signatures and graphs as JSON, and back: plain values, and the frozen records of a signature.

What a `ValueWriter` does not write stands here: `{"operator": "aten.add.Tensor"}`. A record is the name of its class,
and its fields in order. A file is a program, so a reader imports what it names: it is for files that are trusted.
`inspection` shows what is in others, from the JSON alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from subclass_aot.base import _torch
from subclass_aot.base.plain_values import Json, ValueReader, ValueWriter, is_named_tuple
from subclass_aot.base.refused import Refused
from subclass_aot.engine.descriptors import Number
from subclass_aot.files.compiled.names import find, name_of, name_of_operator, operator_named
from subclass_aot.files.compiled.records import RECORDS, WORDS
from subclass_aot.files.compiled.sizes import expression_of, number_of, words_of
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import Symbols, is_symbolic, lasting_key_of

_SYMBOLIC = "it is a number that depends on data, or no whole number. Compile with dynamic=False"
_TENSOR = "it is a tensor, which only graphs may hold"
_CANNOT = """{value!r:.80}, of {kind}, cannot be written.
  A file holds numbers, strings, bytes, tuples, lists, dicts, sets, slices, enums, dataclasses, named tuples, dtypes,
  devices, operators, and classes and functions of modules"""
_OTHER_STATE = "{kind} has attributes beside its fields: {names}"
_UNKNOWN = "{written!r:.80} is nothing that a file has there"

_FUNCTIONS = types.FunctionType | types.BuiltinFunctionType


class Encoder(ValueWriter):
    """Writes values. Specs are written once, and stand for themselves by their position.

    Those with symbols are written where they stand: each signature has symbols of its own.

    Attributes:
        specs: What was written of specs.
        symbols: The symbols of the signature that is written.
    """

    name_of = staticmethod(name_of)
    cannot = _CANNOT

    def __init__(self) -> None:
        self.specs: list[Json] = []
        self.symbols: Symbols | None = None
        self._position: dict[int, int] = {}
        self._kept: list[Spec] = []  # so that ids stay theirs

    def write(self, value: Any) -> Json:
        """Returns a value as what `json.dumps` takes.

        Raises:
            Refused: It cannot be written.
        """
        kind = type(value)
        if value is None or kind in (bool, str, int):
            return value
        if kind in _WRITTEN:
            return _WRITTEN[kind](self, value)
        if kind in WORDS:
            return {WORDS[kind]: [self.part(getattr(value, name), f".{name}") for name in names_in(kind)]}
        if is_symbolic(value):
            if not isinstance(value, torch.SymInt):
                raise Refused(_SYMBOLIC)
            return {"symint": self._words(lasting_key_of(value))}
        if isinstance(value, torch.Tensor):
            raise Refused(_TENSOR)
        if _torch.operators.is_overload(value):
            return {"operator": name_of_operator(value)}
        if isinstance(value, type | _FUNCTIONS):
            return {"named": name_of(value)}
        return super().write(dict(value) if kind is types.MappingProxyType else value)

    def names_in(self, value: Any) -> list[str]:
        """Returns the names of all fields, since no constructor runs when it is read.

        Raises:
            Refused: It has other attributes.
        """
        names = names_in(type(value))
        others = getattr(value, "__dict__", {}).keys() - set(names) if is_dataclass(value) else ()
        if others:
            raise Refused(_OTHER_STATE.format(kind=type(value).__qualname__, names=", ".join(sorted(others))))
        return names

    def _number(self, value: Number) -> Json:
        number: Any = value.number
        expression, beside = _torch.expressions.how_often_beside(number)
        return {"Number": [self._words(expression), beside, value.index]}

    def _words(self, expression: object) -> Json:
        if self.symbols is None:
            raise Refused(_SYMBOLIC)
        return words_of(expression, self.symbols)

    def _spec(self, spec: Spec) -> Json:
        if spec.solver is None:
            return {"spec": self._position_of(spec)}
        numbers = [[n if type(n) is int else self._words(lasting_key_of(n)) for n in each]  # type: ignore[arg-type]
                   for each in (spec.size, spec.stride, (spec.offset,))]  # fmt: skip
        return {"symbolic spec": [*numbers, *map(self.write, (spec.dtype, spec.device, spec.layout))]}

    def _position_of(self, spec: Spec) -> int:
        position = self._position.get(id(spec))
        if position is None:
            written = [spec.size, spec.stride, spec.offset, *map(self.write, (spec.dtype, spec.device, spec.layout))]
            position = self._position[id(spec)] = len(self.specs)
            self.specs.append(written)
            self._kept.append(spec)
        return position


_WRITTEN: Mapping[type, Callable[[Any, Any], Json]] = {
    Spec: lambda self, x: self._spec(x),
    Number: lambda self, x: self._number(x),
    Symbols: lambda self, x: {"symbols": None},
    complex: lambda self, x: {"complex": repr(x)},
    bytes: lambda self, x: {"bytes": x.hex()},
    slice: lambda self, x: {"slice": [self.write(part) for part in (x.start, x.stop, x.step)]},
    range: lambda self, x: {"range": [x.start, x.stop, x.step]},
    type(...): lambda self, x: {"...": None},
}


def _record(cls: type, reader: Decoder, written: Json) -> Any:
    names = names_in(cls)
    values = []
    for part, name in zip(sized(written, len(names)), names, strict=True):
        try:
            values.append(reader.read(part))
        except Refused as refused:  # as `at` does, which takes longer than all else here
            refused.where.insert(0, f"{cls.__name__}.{name}")
            raise
    return cls(*values)


class Decoder(ValueReader):
    """Reads values.

    Args:
        specs: What an `Encoder` has written of specs.

    Attributes:
        symbols: The symbols of the signature that is read.
    """

    makers: ClassVar[dict[str, Callable[[Any, Json], Any]]] = {
        **ValueReader.makers,
        **{word: partial(_record, cls) for word, cls in RECORDS.items()},
        "complex": lambda self, x: complex(x),
        "bytes": lambda self, x: bytes.fromhex(x),
        "slice": lambda self, x: slice(*map(self.read, sized(x, 3))),
        "range": lambda self, x: range(*sized(x, 3)),
        "...": lambda self, x: ...,
        "spec": lambda self, x: self.specs[x],
        "symbolic spec": lambda self, x: self._symbolic_spec(x),
        "symint": lambda self, x: number_of(x, self._symbols()),
        "Number": lambda self, x: self._number(x),
        "symbols": lambda self, x: self._symbols(),
        "operator": lambda self, x: operator_named(x),
        "named": lambda self, x: find(x),
    }

    find = staticmethod(find)

    def __init__(self, specs: Json) -> None:
        self.symbols: Symbols | None = None
        self._numbers: dict[str, Number] = {}
        self.specs = list(map(self._new_spec, specs))

    def made(self, cls: Any, held: dict[str, Any]) -> Any:
        """Makes a dataclass or named tuple of its fields, without its constructor, which may want other arguments."""
        values = [held[name] for name in names_in(cls)]
        if is_named_tuple(cls) and cls.__new__ is not tuple.__new__:
            return tuple.__new__(cls, values)
        made = object.__new__(cls)
        for name, value in zip(names_in(cls), values, strict=True):
            object.__setattr__(made, name, value)
        return made

    def _new_spec(self, written: Json) -> Spec:
        size, stride, offset, *kinds = sized(written, 6)
        return Spec.make(tuple(size), tuple(stride), offset, *map(self.read, kinds))

    def _symbols(self) -> Symbols:
        if self.symbols is None:
            raise Refused("it has symbols, and the signature has none")
        return self.symbols

    def _number(self, written: Json) -> Number:
        """Returns a number that forward gives. Two that proved to be the same are two outputs still."""
        number, beside, index = sized(written, 3)
        text = repr((number, beside))
        if text not in self._numbers:
            symbols = self._symbols()
            expression = _torch.expressions.known(symbols.env, expression_of(number, symbols))
            while Number(expression) in self._numbers.values():
                expression = _torch.expressions.beside(expression)
            self._numbers[text] = Number(expression, index)
        return self._numbers[text]

    def _symbolic_spec(self, written: Json) -> Spec:
        *numbers, dtype, device, layout = sized(written, 6)
        symbols = self._symbols()
        size, stride, (offset,) = (tuple(number_of(n, symbols) for n in each) for each in numbers)
        return Spec.make(size, stride, offset, *map(self.read, (dtype, device, layout)))


def names_in(cls: Any) -> list[str]:
    """Returns the names of the fields of a record."""
    return [field.name for field in fields(cls)] if is_dataclass(cls) else list(cls._fields)


def sized(written: Json, count: int) -> list[Json]:
    """Checks that so many parts were written, and returns them.

    Raises:
        Refused: They were not.
    """
    if type(written) is not list or len(written) != count:
        raise Refused(_UNKNOWN.format(written=written))
    return written
