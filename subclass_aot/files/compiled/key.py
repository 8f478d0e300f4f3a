"""Keys of calls in a file: their facts as text that is the same in each process. See Note [Facts].

The facts of `explain()` are for people: long values are cut, and objects are written by their `repr`, which may have an
address in it. Here values are written as a file has them, or by a hash, and what can be told by neither is named when
the file is written.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, assert_never

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.named import METHODS
from subclass_aot.base.refused import Refused, at
from subclass_aot.base.weak import is_weak, referent
from subclass_aot.engine.facts import Fact, Facts, Kind, source_of, words_of
from subclass_aot.engine.facts import fact as values
from subclass_aot.engine.tables import is_object
from subclass_aot.files.compiled.codec import Encoder

_ADDRESS = "the structure of the arguments has an object that is known by its address: {text}"
_REFUSED = "the function reads or changes the gradients of its inputs"
_BY_ID = {Kind.IDENTITY: None, Kind.ADDRESS: "known by its id"}
_WEAK = "it is a weak reference to something that is not walked"
_OPAQUE = "it is of {kind}, and neither a file nor pickle can say what it holds: {error}"


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """The key of a call in a file.

    Attributes:
        call: What the call brings, by name.
        function: What the function brings, by name.
    """

    call: dict[str, str]
    function: dict[str, str]


def key_of(facts: Iterable[Fact]) -> Key:
    """Writes the facts of a call for a file.

    Raises:
        Refused: A file cannot have one of them.
    """
    key = Key({}, {})
    writer = _Writer()
    for fact in facts:
        with at(fact.place):
            text = writer.fact(fact)
        if text is None:
            continue
        texts = key.call if fact.of_call else key.function
        name = f"{fact.place}: {fact.kind.value}"
        if fact.within and not fact.within[0].isdigit():  # positions of tensors say nothing
            name += f" in {fact.within}"
        while name in texts:
            name += ", again"
        texts[name] = text
    return key


def told(facts: Facts) -> Facts:
    """Returns facts as text, which holds nothing of the call. What is of this process alone is left out."""
    return told_later(facts).told()


def told_later(facts: Facts) -> FactsToTell:
    """Returns facts that become text when they are read: most never are. What is kept holds nothing of the call."""
    writer = _Writer()
    return FactsToTell([fact if _lasts(fact) else writer.told(fact) for fact in facts])


class FactsToTell:
    """Facts of which some are text by now, and the others hold nothing that may change or belongs to the call."""

    __slots__ = ("_facts", "_told")

    def __init__(self, facts: list[Fact | None]) -> None:
        self._facts = facts
        self._told: Facts | None = None

    def told(self) -> Facts:
        """Returns all of them as text."""
        if self._told is None:
            writer = _Writer()
            found = [None if x is None else _told_once(writer, x) for x in self._facts]
            self._told, self._facts = tuple([x for x in found if x is not None]), []
        return self._told

    def beside(self, now: Facts) -> tuple[Facts, Facts]:
        """Returns these and others as text, without those that are equal: of most calls nothing is left.

        Args:
            now: The facts of another call.
        """
        before = self._facts if self._told is None else list(self._told)
        if len(before) != len(now):
            return self.told(), told(now)
        writer, left = _Writer(), list[tuple[Fact | None, Fact | None]]()
        for one, other in zip(before, now, strict=True):
            if one is not None and not isinstance(one.value, values.Told) and one[:3] == other[:3]:
                continue
            texts = None if one is None else _told_once(writer, one), writer.told(other)
            if texts[0] is None or texts[1] is None or texts[0][:3] != texts[1][:3]:
                left.append(texts)
        return tuple([one for one, _ in left if one is not None]), tuple(
            [other for _, other in left if other is not None]
        )

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        return None, {"_facts": [], "_told": self.told()}


def _told_once(writer: _Writer, fact: Fact) -> Fact | None:
    return fact if isinstance(fact.value, values.Told) else writer.told(fact)


def _lasts(fact: Fact) -> bool:
    """Returns whether a fact is numbers, texts and classes of torch alone, whose texts are the same at any time."""
    value: Any = fact.value
    match fact.kind:
        case Kind.LEAF | Kind.NAMES | Kind.CHILDREN | Kind.LENGTH:
            return True
        case Kind.CLASS:
            return value.members is None and isinstance(value.thing, type)
        case Kind.TENSOR:
            return value.cls.members is None and not (value.inner or value.context)
        case Kind.VALUE | Kind.KEYS | Kind.MODE:
            constant = value.value
            return type(constant) in _PLAIN or type(constant) is tuple and all(type(x) in _PLAIN for x in constant)
        case _:
            return False


_PLAIN = {type(None), bool, int, float, str}


class _Writer:
    """Writes facts for one key: a class may get other methods later."""

    def __init__(self) -> None:
        self._codes: dict[int, tuple[Any, str]] = {}  # with the members: an id is that of what lives

    def told(self, fact: Fact) -> Fact | None:
        """Returns a fact as text; None if it is of this process alone."""
        try:
            exact = self.fact(fact)
        except Refused:  # words are all there is
            exact = words_of(fact)
        return None if exact is None else fact._replace(value=values.Told(words_of(fact), exact), within="")

    def fact(self, fact: Fact) -> str | None:
        """Writes what is so; None where that is of this process alone."""
        value: Any = fact.value
        match fact.kind:
            case Kind.STRUCTURE:
                return self._structure(value)
            case Kind.MODE | Kind.VALUE | Kind.LIMIT | Kind.DATA:
                return self._constant(value)
            case Kind.KEYS:
                return self._keys(value.value)
            case Kind.CLASS | Kind.CODE | Kind.METHOD:
                return self._code(value)
            case Kind.STANDS:
                return self._code(value) if isinstance(value, values.Code) else str(value)
            case Kind.HOOKS:
                runs = zip(map(self._code, value.functions), value.how, strict=True)
                return ", ".join(" ".join(filter(None, run)) for run in runs)
            case Kind.OBJECT:
                return f"object {value.label}"
            case Kind.TENSOR:
                return self._metadata(value)
            case Kind.GRADIENTS:
                raise Refused(_REFUSED)
            case Kind.IDENTITY | Kind.ADDRESS:
                return _BY_ID[fact.kind]
            case (
                Kind.LENGTH | Kind.NAMES | Kind.CHILDREN | Kind.SAME | Kind.VIEW | Kind.STORAGE | Kind.LEAF
                | Kind.BEGINNING | Kind.BYTES | Kind.HISTORY | Kind.TWICE | Kind.SIZE | Kind.ASSUMED
                | Kind.NUMBER
            ):  # fmt: skip
                return str(value)
            case _:
                assert_never(fact.kind)

    def _keys(self, keys: tuple[object, ...]) -> str:
        """Writes keys; what an object that is one holds is told by facts of its own."""
        if not any(map(is_object, keys)):
            return self._value(keys)
        return self._value(tuple([self._code(values.Code.of(type(key))) if is_object(key) else key for key in keys]))

    def _structure(self, value: tuple[Any, ...]) -> str:
        treespec, kinds, classes = value
        text = str(treespec)
        if " at 0x" in text:
            raise Refused(_ADDRESS.format(text=text))
        names = [f"{cls.__module__}:{cls.__qualname__}" for cls in classes]
        return f"{text} {' '.join(names)} {' '.join(kind.__name__ for kind in kinds)}"

    def _constant(self, constant: values.Constant) -> str:
        if constant.digest == values.HASH:
            return constant.digest
        if constant.digest is not None and not _is_written(constant.value):
            return f"{self._code(values.Code.of(type(constant.value)))} {constant.digest}"
        return self._value(constant.value)

    def _value(self, value: Any) -> str:
        """Writes a Python value: as a file has it, by name and code, or by the hash of its pickle."""
        if is_weak(value):
            if referent(value) is None:
                return "a weak reference to nothing"
            raise Refused(_WEAK)
        if isinstance(value, torch.nn.Module):
            return f"a module {self._code(values.Code.of(type(value)))}"
        if isinstance(value, types.FunctionType | types.MethodType | type | types.BuiltinFunctionType):
            return self._code(values.Code.of(value))
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if type(value) is set:  # in an order that is another one in each process
            return f"{{{', '.join(sorted(map(self._value, value)))}}}"
        try:
            return json.dumps(Encoder().write(value))
        except Refused:
            pass
        try:
            code = self._code(values.Code.of(type(value)))
            return f"{code} {hashlib.sha256(pickle.dumps(value, 4)).hexdigest()[:24]}"
        except Exception as error:  # of any class
            pass_on_interruption(error)
            kind = type(value).__qualname__
            raise Refused(_OPAQUE.format(kind=kind, error=f"{type(error).__name__}: {error}")) from error

    def _code(self, code: values.Code) -> str:
        """Writes what a function or a class is: its name, and what code it runs."""
        thing = code.thing
        if isinstance(thing, types.MethodType):
            owner = self._code(values.Code.of(type(thing.__self__)))
            return f"method {self._code(values.Code.of(thing.__func__))} of {owner}"
        if isinstance(thing, METHODS):
            return f"{type(thing).__name__} {source_of(thing)}"
        if not isinstance(thing, types.FunctionType | type | types.BuiltinFunctionType):
            return self._code(values.Code.of(type(thing)))
        if code.members is not None and id(code.members) in self._codes:
            return self._codes[id(code.members)][1]
        known = f"{thing.__module__}:{thing.__qualname__}"
        if not isinstance(thing, type) or code.members is not None:  # torch's classes are of the version in the file
            known += f" {source_of(thing, code.members)}"
        self._codes[id(code.members)] = code.members, known
        return known

    def _metadata(self, metadata: values.Metadata) -> str:
        numbers = [list(metadata.size), list(metadata.stride)]
        told = [str(metadata.dtype), str(metadata.device), str(metadata.layout), metadata.requires_grad]
        text = f"{self._code(metadata.cls)} {numbers} {told} {metadata.dispatch_keys}"
        inner = [f"{name}: {self._inner(part, f'.{name}')}" for name, part in metadata.inner]
        with at("context"):
            if isinstance(metadata.context, values.Context):
                context = self._constant(metadata.context.value)
            else:
                context = ", ".join(f"{name}={self._constant(value)}" for name, value in metadata.context)
        return f"{text} {{{', '.join(inner)}}} {context}" if metadata.inner or metadata.context else text

    def _inner(self, part: values.Inner, step: str) -> str:
        with at(step):
            match part:
                case values.Metadata():
                    return self._metadata(part)
                case values.Parts():
                    parts = [f"{key!r}: {self._inner(x, f'[{key!r}]')}" for key, x in part.items]
                    return f"{part.cls.__name__}({', '.join(parts)})"
                case values.Constant():
                    return self._constant(part)
                case _:
                    assert_never(part)


def _is_written(value: object) -> bool:
    """Returns whether a file can say what a value is, and does not need its hash."""
    try:
        Encoder().write(value)
    except Refused:
        return False
    return True
