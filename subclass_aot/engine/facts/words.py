"""Facts in words: what differs between two calls, and what `explain()` and a file say of one."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import assert_never

import torch

from subclass_aot.base.weak import is_weak
from subclass_aot.engine.facts.fact import (
    HOLDS,
    LEAF,
    Code,
    Constant,
    Context,
    Fact,
    Facts,
    History,
    Hooks,
    Inner,
    Itself,
    Kind,
    Metadata,
    Parts,
    Told,
    Value,
)
from subclass_aot.engine.tables import has_vars

_QUIET = frozenset(
    {
        Kind.IDENTITY, Kind.OBJECT, Kind.KEYS, Kind.NAMES, Kind.CHILDREN, Kind.ADDRESS, Kind.LEAF, Kind.SIZE,
        Kind.ASSUMED,
    }
)  # fmt: skip
"""What is said only if nothing else is: mostly something differs inside, too."""


def difference(before: Facts, now: Facts) -> list[str]:
    """Lists the facts that differ, each as one line."""
    methods: list[str] = []
    loud: list[str] = []
    at_both: list[str] = []
    quiet: list[str] = []
    then, there = _by_place(before), _by_place(now)
    for key in dict.fromkeys([*then, *there]):
        for one, other in _pairs(then.get(key, []), there.get(key, [])):
            if key[1] is Kind.ASSUMED and (other is None or words_of(other) == HOLDS):
                continue  # all that was assumed held, and a compiler may have assumed more since
            if one is None or other is None or (one.kind, one.value) != (other.kind, other.value):
                line = _line(one, other)
                silent = key[1] in _QUIET or line.endswith(_ANOTHER)
                (methods if key[1] is Kind.METHOD else quiet if silent else loud).append(line)
                if not silent and one is not None and other is not None and key[1] is not Kind.METHOD:
                    at_both.append(line)
    # With another method come other globals, defaults and so on.
    return methods + at_both if methods else loud or quiet


def words(facts: Iterable[Fact]) -> dict[str, str]:
    """Writes facts for people, by name."""
    found: dict[str, str] = {}
    for fact in facts:
        if fact.kind not in _QUIET:
            found.setdefault(_name(fact), words_of(fact))
    return found


_ALIKE = {Kind.SAME: Kind.TENSOR, Kind.CODE: Kind.VALUE}
"""What is said in one line with another kind, where the one was and the other is."""


def _by_place(facts: Facts) -> dict[tuple[str, Kind], list[Fact]]:
    found: dict[tuple[str, Kind], list[Fact]] = defaultdict(list)
    for fact in facts:
        found[fact.place, _ALIKE.get(fact.kind, fact.kind)].append(fact)
    return found


def _pairs(before: list[Fact], now: list[Fact]) -> list[tuple[Fact | None, Fact | None]]:
    count = max(len(before), len(now))
    return [(before[i] if i < len(before) else None, now[i] if i < len(now) else None) for i in range(count)]


_ANOTHER = " before, another one now"


def _line(before: Fact | None, now: Fact | None) -> str:
    """Says what differs, with the name of it."""
    name = _name(before or now)  # type: ignore[arg-type]
    one, other = ("absent" if fact is None else words_of(fact) for fact in (before, now))
    if before is not None and now is not None and now.kind is Kind.METHOD:
        return f"{name} was replaced"
    if one == other and all(fact is not None and isinstance(fact.value, Told) for fact in (before, now)):
        one, other = (f"{fact.value.text} #{fact.value.digest}" for fact in (before, now))  # type: ignore[union-attr]
    if (before or now).kind is Kind.ASSUMED:  # type: ignore[union-attr]
        return f"{name} before, {other.replace(',', ' now,', 1)}"
    return f"{name}: {one}{_ANOTHER}" if one == other else f"{name}: {one} before, {other} now"


def _name(fact: Fact) -> str:
    """Returns the name of what a fact is about."""
    place = fact.place
    match fact.kind:
        case Kind.CLASS | Kind.STANDS:
            return f"class of {place}"
        case Kind.LENGTH:
            return f"len({place})"
        case Kind.KEYS | Kind.LIMIT | Kind.ADDRESS:
            return f"{fact.kind.value} of {place}"
        case Kind.NAMES | Kind.CHILDREN:
            return f"{fact.kind.value} of {place}"
        case Kind.VIEW:
            return f"how autograd has {place}"
        case Kind.LEAF:
            return f"{place}.is_leaf"
        case Kind.BEGINNING:
            return f"storage offset of {place}"
        case Kind.DATA:
            return f"values of {place}"
        case Kind.BYTES:
            return f"bytes of the storage of {place}"
        case Kind.HISTORY:
            return f"history of {place}"
        case (
            Kind.STRUCTURE | Kind.MODE | Kind.IDENTITY | Kind.VALUE | Kind.CODE | Kind.METHOD | Kind.OBJECT | Kind.HOOKS
            | Kind.TENSOR | Kind.SAME | Kind.NUMBER | Kind.STORAGE | Kind.TWICE | Kind.GRADIENTS | Kind.SIZE
            | Kind.ASSUMED
        ):  # fmt: skip
            return place
        case _:
            assert_never(fact.kind)


def words_of(fact: Fact) -> str:
    """Says what is so."""
    value = fact.value
    if isinstance(value, Told):
        return value.text
    match fact.kind:
        case Kind.STRUCTURE:
            assert isinstance(value, tuple)
            # All trees here are of that namespace; users need not know of it.
            return str(value[0]).replace(", namespace='torch'", "")
        case Kind.MODE:
            return str(_constant(value))
        case Kind.VALUE:
            text = text_of(_constant(value))
            return f"{type(_constant(value)).__name__} {text}" if fact.place.startswith(f"{LEAF} ") else text
        case Kind.KEYS | Kind.LIMIT | Kind.DATA:
            return text_of(_constant(value))
        case Kind.CLASS | Kind.CODE | Kind.METHOD:
            assert isinstance(value, Code)
            return _class(value.thing)
        case Kind.STANDS:
            return _stands(value)
        case Kind.OBJECT:
            return f"the object at {value.path}"  # type: ignore[union-attr]
        case Kind.IDENTITY:
            return _class(type(value.thing)) if isinstance(value, Itself) else "objects"
        case Kind.HOOKS:
            assert isinstance(value, Hooks)
            return ", ".join(_class(code.thing) for code in value.functions)
        case Kind.TENSOR:
            assert isinstance(value, Metadata)
            return text_of_metadata(value)
        case Kind.SAME:
            return f"the same tensor as {value}"
        case Kind.STORAGE:
            return str(list(value.together) or "none")  # type: ignore[union-attr]
        case Kind.HISTORY:
            assert isinstance(value, History)
            if value.first is None:
                return "one with none that is written"
            return "its own" if value.first == value.position else f"one with {value.path}"
        case Kind.VIEW:
            assert isinstance(value, tuple)
            return f"a view of {value[1]}, {str(value[0]).rpartition('.')[2]}"
        case Kind.TWICE:
            return ", ".join(value) or "none"  # type: ignore[arg-type]
        case Kind.NAMES | Kind.CHILDREN:
            return ", ".join(name for name, _ in value.entries) or "none"  # type: ignore[union-attr]
        case Kind.SIZE | Kind.ASSUMED | Kind.LENGTH | Kind.NUMBER | Kind.LEAF | Kind.BEGINNING | Kind.BYTES:
            return str(value)
        case Kind.ADDRESS:
            return f"{value:#x}"
        case Kind.GRADIENTS:
            return "read or changed"
        case _:
            assert_never(fact.kind)


def _constant(value: Value) -> object:
    assert isinstance(value, Constant)
    return value.value


def _stands(value: Value) -> str:
    if not isinstance(value, Code):
        return str(value)
    return "a weak reference" if is_weak_class(value.thing) else str(value.thing.__name__)


def is_weak_class(cls: type) -> bool:
    """Returns whether objects of a class are weak references."""
    return cls.__module__ in ("weakref", "_weakrefset") or cls.__name__.startswith(("weakproxy", "weakcallable"))


def _class(thing: type | object) -> str:
    if not isinstance(thing, type):
        name = getattr(thing, "__name__", type(thing).__qualname__)
        return f"function {name}" if hasattr(thing, "__code__") else str(name)
    return thing.__qualname__ if thing.__module__ == "builtins" else f"{thing.__module__}.{thing.__qualname__}"


def text_of_metadata(metadata: Metadata) -> str:
    """Describes the metadata of a tensor in one line."""
    kind = metadata.cls.thing
    name = kind.__name__ if kind in (torch.Tensor, torch.nn.Parameter) else f"{kind.__module__}.{kind.__qualname__}"
    dtype = str(metadata.dtype).removeprefix("torch.")
    text = f"{name} {dtype}[{', '.join(map(str, metadata.size))}] on {metadata.device}"
    if metadata.layout is torch.strided and metadata.stride != _packed(metadata.size):
        text += f" stride ({', '.join(map(str, metadata.stride))})"
    if metadata.requires_grad:
        text += " requires_grad"
    if metadata.is_inference:
        text += " of inference mode"
    if metadata.inner or metadata.context:
        inner = ", ".join(f"{name}: {_inner(part)}" for name, part in metadata.inner)
        text += f" {{{inner}}}{_context(metadata)}"
    return text


def _packed(size: tuple[int | str, ...]) -> tuple[int, ...]:
    """Returns the strides of a tensor without gaps; none where a size is a symbol."""
    if not all(isinstance(n, int) for n in size):
        return ()
    return torch.empty([int(n) for n in size], device="meta").stride()


def _context(metadata: Metadata) -> str:
    if not isinstance(metadata.context, Context):
        pairs = [f"{name}={text_of(x.value)}" for name, x in metadata.context if x.value is not None]
        return f" context {', '.join(pairs)}" if pairs else ""
    value = metadata.context.value.value
    return f" context {value!r}" if value is not None else ""


def _inner(part: Inner) -> str:
    match part:
        case Metadata():
            return text_of_metadata(part)
        case Parts():
            return f"{part.cls.__name__}({', '.join(f'{key}: {_inner(x)}' for key, x in part.items)})"
        case Constant():
            return text_of(part.value)
        case _:
            assert_never(part)


def text_of(value: object) -> str:
    """Returns a Python value as text of one short line."""
    if not is_weak(value) and isinstance(value, torch.nn.Module):
        return type(value).__name__
    if is_weak(value) or hasattr(type(value), "__next__"):  # its state changes, and does not count
        return f"{type(value).__name__} at {id(value):#x}"
    text = repr(value)
    if has_vars(type(value)) and vars(value):
        text += f" with {vars(value)}"
    if len(text) < 80:
        return text
    return f"{text[:60]}... #{hashlib.sha256(text.encode()).hexdigest()[:8]}"  # by which two long ones differ
