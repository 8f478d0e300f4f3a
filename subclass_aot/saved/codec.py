"""Values as JSON, and back: Python values, contexts of wrappers, and the frozen records of a signature.

Numbers that are whole, strings, booleans and None stand for themselves. All else is a list that begins with a word:
`["tuple", 1, 2]`. A record is its class's name and its fields in order, and a reader compares each field with the
annotation of that field; there are no other classes than those of `records.py`.
"""

from __future__ import annotations

import functools
import math
import types
import typing
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
from subclass_aot.saved.records import LIMITS, RECORDS, WORDS
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
_WRONG_TYPE = "{value!r:.80} stands where there is {hint}"
_FUNCTION = "{name} is a function, and with trust=False none is taken from a file"
_TOO_LARGE = "{number} is out of range"

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
        """A value as what `json.dumps` takes.

        Raises:
            Refused: It cannot be written.
        """
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if isinstance(value, int) and kind is int:
            return value if abs(value) < LIMITS.number else ["int", hex(value)]
        if isinstance(value, float) and kind is float:
            return ["float", value.hex() if math.isfinite(value) else repr(value)]
        if isinstance(value, Spec):
            return ["spec", self._spec(value)] if value.solver is None else self._symbolic_spec(value)
        if isinstance(value, Number):
            number: Any = value.number
            expression, beside = _torch.how_often_beside(number)
            return ["Number", self._words(expression), beside, value.index]
        if kind in WORDS:
            problem = LIMITS.problem(value)
            if problem:
                raise Refused(problem)
            return [WORDS[kind], *(self._field(value, name) for name in names_in(kind))]
        if is_symbolic(value):
            if not isinstance(value, torch.SymInt):
                raise Refused(_SYMBOLIC)
            return ["symint", self._words(lasting_key_of(value))]
        if isinstance(value, torch.Tensor):
            raise Refused(_TENSOR)
        return self._other(value, kind)

    def _field(self, value: object, name: str) -> Json:
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
            return ["object", name_of(kind), *(self._field(value, field.name) for field in fields(kind))]
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
        trust: Whether modules are imported, and functions taken from them.

    Attributes:
        symbols: The symbols of the signature that is read.
    """

    def __init__(self, specs: Json, trust: bool) -> None:
        self.trust = trust
        self.symbols: Symbols | None = None
        self._numbers: dict[str, Number] = {}
        self._specs: list[Spec] = []
        self._words: dict[str, Callable[[list[Json]], Any]] = {
            **{word: functools.partial(self._sequence, cls) for word, cls in _SEQUENCES.items()},
            **{word: functools.partial(self._of_torch, cls) for word, cls in _TORCH.items()},
            "int": lambda x: int(self.text(x, 1, 0), 16),
            "float": lambda x: _float(self.text(x, 1, 0)),
            "complex": lambda x: complex(*(self.of(part, float) for part in _sized(x, 2))),
            "bytes": lambda x: bytes.fromhex(self.text(x, 1, 0)),
            "dict": self._dict,
            "slice": lambda x: slice(*(self.of(part, int | None) for part in _sized(x, 3))),
            "range": lambda x: range(*(self.of(part, int) for part in _sized(x, 3))),
            "...": lambda x: ... if _sized(x, 0) == [] else None,
            "device": lambda x: torch.device(self.text(x, 1, 0)),
            "spec": lambda x: self.spec(_sized(x, 1)[0]),
            "symbolic spec": self._symbolic_spec,
            "symint": lambda x: number_of(_sized(x, 1)[0], self._symbols()),
            "Number": self._number,
            "enum": self._enum,
            "operator": lambda x: operator_named(self.text(x, 1, 0), trust),
            "class": lambda x: self.cls(_sized(x, 1)[0]),
            "function": self._function,
            "object": self._object,
        }
        for written in self.listed(specs, "specs"):
            self._specs.append(self._new_spec(written))

    def decode(self, written: Json) -> Any:
        """The value that was written.

        Raises:
            Refused: It is nothing that a file may have.
        """
        if written is None or type(written) in (bool, str):
            return written
        if type(written) is int:
            return _in_range(written)
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
        except Exception as error:  # of the constructor of the value
            pass_on_interruption(error)
            raise Refused(_UNKNOWN.format(written=written)) from error

    def of(self, written: Json, hint: object) -> Any:
        """The value that was written, if it is what an annotation says.

        Raises:
            Refused: It is not.
        """
        value = self.decode(written)
        if not fits(value, hint):
            raise Refused(_WRONG_TYPE.format(value=value, hint=hint))
        return value

    @staticmethod
    def listed(written: Json, what: str) -> list[Json]:
        """A list of JSON.

        Raises:
            Refused: It is none.
        """
        if type(written) is not list:
            raise Refused(_WRONG_TYPE.format(value=written, hint=f"the list of {what}"))
        return written

    @staticmethod
    def text(written: list[Json], count: int, position: int) -> str:
        """A string among `count` parts."""
        found = _sized(written, count)[position]
        if type(found) is not str:
            raise Refused(_WRONG_TYPE.format(value=found, hint="a text"))
        return found

    def spec(self, position: object) -> Spec:
        """The spec at a position."""
        if type(position) is not int or not 0 <= position < len(self._specs):
            raise Refused(_UNKNOWN.format(written=position))
        return self._specs[position]

    def _new_spec(self, written: Json) -> Spec:
        size, stride, offset, dtype, device, layout = _sized(self.listed(written, "a spec"), 6)
        for numbers in (size, stride):
            if type(numbers) is not list or not all(type(n) is int and 0 <= n < LIMITS.size for n in numbers):
                raise Refused(_UNKNOWN.format(written=written))
        if type(offset) is not int or not 0 <= offset < LIMITS.size or len(size) != len(stride):
            raise Refused(_UNKNOWN.format(written=written))
        kinds = self.of(dtype, torch.dtype), self.of(device, torch.device), self.of(layout, torch.layout)
        spec = Spec.make(tuple(size), tuple(stride), offset, *kinds)
        if max(spec.nbytes, spec.extent * spec.dtype.itemsize) >= LIMITS.size:
            raise Refused(_TOO_LARGE.format(number=list(size)))
        return spec

    def _symbols(self) -> Symbols:
        if self.symbols is None:
            raise Refused("it has symbols, and the signature has none")
        return self.symbols

    def _number(self, written: list[Json]) -> Number:
        """A number that forward gives. Two that turned out to be the same are two outputs still."""
        number, beside, index = _sized(written, 3)
        text = repr((number, self.of(beside, int)))
        if text not in self._numbers:
            symbols = self._symbols()
            expression = _torch.known(symbols.env, expression_of(number, symbols))
            while Number(expression) in self._numbers.values():
                expression = _torch.beside(expression)
            self._numbers[text] = Number(expression, self.of(index, int))
        return self._numbers[text]

    def _symbolic_spec(self, written: list[Json]) -> Spec:
        size, stride, offset, *others = _sized(written, 6)
        symbols = self._symbols()
        parts: list[Any] = [[number_of(n, symbols) for n in self.listed(each, "sizes")]
                            for each in (size, stride, offset)]  # fmt: skip
        hints = [[_torch.example_of(n) for n in each] for each in parts]
        if len(size) != len(stride) or len(offset) != 1:
            raise Refused(_UNKNOWN.format(written=written))
        self._new_spec([*hints[:2], hints[2][0], *others])  # which refuses what no tensor can have
        kinds = (self.of(x, kind) for x, kind in zip(others, (torch.dtype, torch.device, torch.layout), strict=True))
        return Spec.make(tuple(parts[0]), tuple(parts[1]), parts[2][0], *kinds)

    def _record(self, cls: type, written: list[Json]) -> Any:
        hints = hints_of(cls)
        values = []
        for part, (name, hint) in zip(_sized(written, len(hints)), hints.items(), strict=True):
            try:
                values.append(self.of(part, hint))
            except Refused as refused:  # as `at` does, which takes longer than all else here
                refused.where.insert(0, f"{cls.__name__}.{name}")
                raise
        made = cls(*values)
        problem = LIMITS.problem(made)
        if problem:
            raise Refused(problem)
        return made

    def _sequence(self, cls: Any, written: list[Json]) -> Any:
        return cls(list(map(self.decode, written)))

    def _of_torch(self, cls: type, written: list[Json]) -> Any:
        found = vars(torch).get(self.text(written, 1, 0))
        if type(found) is not cls:
            raise Refused(_UNKNOWN.format(written=written))
        return found

    def _dict(self, written: list[Json]) -> dict[Any, Any]:
        pairs = [_sized(self.listed(pair, "a pair"), 2) for pair in written]
        found = {self.decode(key): self.decode(value) for key, value in pairs}
        if len(found) != len(pairs):
            raise Refused("a dict has a key twice")
        return found

    def cls(self, name: object) -> type:
        """The class of that name."""
        found = find(name, self.trust)
        if not isinstance(found, type):
            raise Refused(_WRONG_TYPE.format(value=name, hint="a class"))
        return found

    def _function(self, written: list[Json]) -> Any:
        name = self.text(written, 1, 0)
        if not self.trust:
            raise Refused(_FUNCTION.format(name=name))
        found = find(name, True)
        if not isinstance(found, _FUNCTIONS):
            raise Refused(_WRONG_TYPE.format(value=name, hint="a function"))
        return found

    def _enum(self, written: list[Json]) -> Any:
        cls = self.cls(_sized(written, 2)[0])
        member = self.text(written, 2, 1)
        if not issubclass(cls, Enum) or member not in cls.__members__:
            raise Refused(_UNKNOWN.format(written=written))
        return cls.__members__[member]

    def _object(self, written: list[Json]) -> Any:
        """A dataclass or named tuple, of its fields: no code of the class runs."""
        if not written:
            raise Refused(_UNKNOWN.format(written=written))
        cls: Any = self.cls(written[0])
        parts = [self.decode(part) for part in written[1:]]
        if _is_named_tuple(cls):
            return tuple.__new__(cls, _sized(parts, len(cls._fields)))
        is_data: bool = is_dataclass(cls)  # mypy would take it for an instance
        if not is_data or cls.__new__ is not object.__new__ or issubclass(cls, torch.nn.Module):
            raise Refused(_WRONG_TYPE.format(value=written[0], hint="a dataclass or named tuple"))
        made = object.__new__(cls)
        for field, part in zip(fields(cls), _sized(parts, len(fields(cls))), strict=True):
            object.__setattr__(made, field.name, part)
        return made


def names_in(cls: Any) -> list[str]:
    """The names of the fields of a record."""
    return [field.name for field in fields(cls)] if is_dataclass(cls) else list(cls._fields)


@functools.cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The annotations of the fields of a record, by name."""
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in names_in(cls)}


def fits(value: object, hint: object) -> bool:
    """Whether a value is what an annotation says.

    >>> fits((1, 2), tuple[int, ...]), fits((1, "x"), tuple[int, ...]), fits(True, int)
    (True, False, False)
    """
    if hint is Any or hint is typing.Hashable or hint is object:
        return True
    if type(hint) is type:  # most are: no generic class, and nothing to take apart
        return type(value) is hint if hint in (int, float, bool, str) else isinstance(value, hint)
    if hint is None:
        return value is None
    origin: Any = typing.get_origin(hint)
    inside: Any = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inside)
    if origin is typing.Literal:
        return any(value == one and type(value) is type(one) for one in inside)
    if origin is tuple:
        if not isinstance(value, tuple) or type(value) is not tuple:
            return False
        if inside[1:] == (...,):
            return all(fits(x, inside[0]) for x in value)
        return len(value) == len(inside) and all(map(fits, value, inside))
    if origin in (list, frozenset):
        return type(value) is origin and all(fits(x, inside[0]) for x in list(value))  # type: ignore[call-overload]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return type(value) is dict and all(fits(k, inside[0]) and fits(v, inside[1]) for k, v in value.items())
    if origin is type:
        return isinstance(value, type) and (inside[0] is Any or issubclass(value, inside[0]))
    if origin is not None:
        return bool(callable(value))
    return isinstance(hint, type) and isinstance(value, hint)


def _sized(written: list[Json], count: int) -> list[Json]:
    if len(written) != count:
        raise Refused(_UNKNOWN.format(written=written))
    return written


def _in_range(number: int) -> int:
    if abs(number) >= LIMITS.number:
        raise Refused(_TOO_LARGE.format(number=hex(number)))
    return number


def _float(text: str) -> float:
    return float(text) if text in ("nan", "inf", "-inf") else float.fromhex(text)


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__new__ is not tuple.__new__
