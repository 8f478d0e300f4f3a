"""What a call is told by in a file: everything that a signature depends on, by value.

The facts of `explain()` are for people: long values are cut, and objects are told by their `repr`, which may have an
address in it. Here values are written as a file has them, or by a hash, and what can be told by neither is named when
the file is written.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption
from subclass_aot.aliasing import autograd_base, storage_groups
from subclass_aot.call import Arguments
from subclass_aot.flatten import SubclassCreationMeta
from subclass_aot.guards import MODES, Modes
from subclass_aot.objects import Holder
from subclass_aot.objects import nodes as kinds
from subclass_aot.saved.codec import Encoder
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.sources import source_of
from subclass_aot.tables import HOOKS, MODULE_TABLES, Table
from subclass_aot.weak import is_weak, referent

_ADDRESS = "the structure of the arguments has an object that is told by its address: {text}"
_SYMBOL = "it is a number that the function changes itself, and a symbol"
_GRADIENTS = "the function reads or changes the gradients of its inputs"
_WEAK = "it is a weak reference to something that is not looked into"
_OPAQUE = "it is of {kind}, and neither a file nor pickle can say what it holds: {error}"

_HASH = "the hash of the object"

_OF_CALL = ("args", "kwargs", "a key of args", "a key of kwargs")


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """What a call is told by.

    Attributes:
        call: What the call brings, by name.
        function: What the function brings, by name.
        pinned: The paths of objects that are the same at each call, by their ids.
        problem: Why a file cannot have it; None where it can.
    """

    call: dict[str, str]
    function: dict[str, str]
    pinned: dict[int, str]
    problem: Refused | None


def is_of_call(path: str) -> bool:
    """Whether something is reached by the arguments, and not by the function alone."""
    return path.startswith(_OF_CALL)


def key_of(
    arguments: Arguments,
    leaves: Sequence[Any],
    state: Modes,
    places: Mapping[str, str] = MappingProxyType({}),
    refuse: bool = False,
) -> Key:
    """The key of a call.

    Args:
        arguments: The call.
        leaves: Its leaves.
        state: The modes of torch.
        places: The sizes and strides that are symbols, such as `args[0].size(1)`, and what is written instead.
        refuse: Whether to raise what is wrong, and not to note it.
    """
    call: dict[str, str] = {}
    function: dict[str, str] = {}
    problem = None
    try:
        for of_call, name, text in _Writer(arguments, leaves, state, places).write():
            (call if of_call else function)[name] = text
    except Refused as refused:
        if refuse:
            raise
        problem = refused.bare()
    named = [*arguments.held, *arguments.modules]
    pinned = {id(part): path for path, part in reversed(named)}
    return Key(call, function, pinned, problem)


def named_objects(arguments: Arguments) -> dict[str, Any]:
    """The objects of a call that are the same at each, by their paths."""
    return {path: part for path, part in reversed([*arguments.held, *arguments.modules])}


class _Writer:
    def __init__(self, arguments: Arguments, leaves: Sequence[Any], state: Modes, places: Mapping[str, str]) -> None:
        self.places = places
        self.arguments = arguments
        self.leaves = leaves
        self.state = state
        self.objects = arguments.objects
        self.labels: dict[int, str] = {}
        self._modules = {id(module): i for i, (_, module) in enumerate(arguments.modules)}
        self._classes: dict[type, str] = {}  # for one key alone: a class may get other methods later
        counts = {"call": 0, "function": 0}
        for position, holder in enumerate(self.objects.holders):
            of = "call" if is_of_call(self._root(holder).path) else "function"
            self.labels[position] = f"{of} {counts[of]}"
            counts[of] += 1

    def write(self) -> Iterator[tuple[bool, str, str]]:
        """Yields whether the call brings something, what it is called, and what it is."""
        arguments = self.arguments
        if arguments.with_grad:
            raise Refused(_GRADIENTS)
        yield True, "the structure of the arguments", self._structure()
        for name, value in zip(MODES, self.state, strict=True):
            with at(name):
                yield True, f"the {name}", self._value(value)
        for position, node in self.objects.leaves.items():
            with at(f"argument {position}"):
                yield True, f"argument {position}", self._node(node)
        for name, part in arguments.held:
            yield is_of_call(name), f"{name}: itself", self._identity(part)
        for path, module in arguments.modules:
            with at(path):
                yield is_of_call(path), f"{path}: module", self._module(module)
        for position, holder in enumerate(self.objects.holders):
            with at(holder.path):
                of_call = self.labels[position].startswith("call")
                yield from ((of_call, name, text) for name, text in self._holder(self.labels[position], holder))
        for place, position in arguments.placed:
            if place.path in arguments.changing:
                with at(place.path):
                    raise Refused(_SYMBOL)
            first = arguments.path_of(position)
            with at(place.path):
                told = (
                    f"the same tensor as {first}"
                    if first != place.path
                    else self._tensor(arguments.values[position], first)
                )
                yield is_of_call(place.path), f"{place.path}: tensor", told
        groups = storage_groups(list(self.leaves))
        yield True, "the leaves that share storage", str(groups)
        yield (
            True,
            "the storage offsets of these",
            str([self.leaves[i].storage_offset() for group in groups for i in group]),
        )
        yield True, "the lists and dicts that are passed twice", str(sorted(arguments.passed_twice.values()))
        yield True, "the tensors with one history", self._histories()

    def _root(self, holder: Holder) -> Holder:
        while holder.parent is not None:
            holder = self.objects.holders[holder.parent]
        return holder

    def _structure(self) -> str:
        text = str(self.arguments.treespec)
        if " at 0x" in text:
            raise Refused(_ADDRESS.format(text=text))
        types = [
            f"{entry.type.__module__}:{entry.type.__qualname__}"
            for accessor in self.arguments.treespec.accessors()
            for entry in accessor
        ]
        return text + " " + " ".join(dict.fromkeys(types))

    def _holder(self, label: str, holder: Holder) -> Iterator[tuple[str, str]]:
        yield f"{holder.path}: object {label}", f"{self._identity(holder.value)} {holder.only_grows}"
        limit = Table.limit_of(holder.value)
        if limit is not None:
            yield f"{holder.path}: limit of {label}", self._value(limit)
        for table, entries in holder.tables:
            if holder.only_grows:
                continue
            yield f"{holder.path}: {table.kind} of {label}", str(len(entries))
            if table.kind == "members" and all(isinstance(node, kinds.ValueAt) for _, node in entries):
                with at("{...}"):  # in an order that is another one in each process
                    elements = sorted(self._node(node) for _, node in entries)
                yield f"{holder.path}: elements of {label}", ", ".join(elements)
                continue
            for i, (key, node) in enumerate(entries):
                name = "" if table.kind in HOOKS else self._key(key)  # of a hook, the number of one of the process
                step = f"[{i}]" if isinstance(key, kinds.TensorAt) else table.step(key)
                with at(step):
                    told = _HASH if _is_hash_of(node, holder.value) else self._node(node)
                    yield f"{holder.path}{step} in {table.kind} {i} of {label}", f"{name} {told}"

    def _key(self, key: object) -> str:
        return self._node(key) if isinstance(key, kinds.TensorAt) else self._value(key)

    def _node(self, node: kinds.Node) -> str:
        match node:
            case kinds.TensorAt():
                return "a tensor"
            case kinds.NumberAt():
                raise Refused(_SYMBOL)
            case kinds.ObjectAt():
                return f"object {self.labels[node.position]}"
            case kinds.WeakAt():
                return f"{self._class(type(node.value))} to {self._node(node.target)}"
            case kinds.TupleAt():
                return f"{self._class(node.cls)}({', '.join(map(self._node, node.parts))})"
            case kinds.ValueAt():
                return self._value(node.value)

    def _value(self, value: object) -> str:
        """A Python value: as a file has it, by name and code, or by the hash of its pickle."""
        if is_weak(value):
            if referent(value) is None:
                return "a weak reference to nothing"
            raise Refused(_WEAK)
        if isinstance(value, torch.nn.Module):
            return f"a module {self._class(type(value))}"
        if isinstance(value, types.FunctionType | types.MethodType | type | types.BuiltinFunctionType):
            return self._identity(value)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        try:
            return json.dumps(Encoder().encode(value))
        except Refused:
            pass
        try:
            return f"{self._class(type(value))} {hashlib.sha256(pickle.dumps(value, 4)).hexdigest()[:24]}"
        except Exception as error:  # of any class
            pass_on_interruption(error)
            kind = type(value).__qualname__
            raise Refused(_OPAQUE.format(kind=kind, error=f"{type(error).__name__}: {error}")) from error

    def _identity(self, thing: object) -> str:
        """What an object is, beside what it holds: its class, or what code it runs."""
        if isinstance(thing, types.MethodType):
            return f"method {self._identity(thing.__func__)} of {self._class(type(thing.__self__))}"
        if isinstance(thing, types.FunctionType | type | types.BuiltinFunctionType):
            return f"{thing.__module__}:{thing.__qualname__} {source_of(thing)}"
        return self._class(type(thing))

    def _class(self, cls: type) -> str:
        told = self._classes.get(cls)
        if told is None:
            is_torchs = cls.__module__.partition(".")[0] in ("torch", "builtins")  # of the version in the file
            told = f"{cls.__module__}:{cls.__qualname__}" + ("" if is_torchs else f" {source_of(cls)}")
            self._classes[cls] = told
        return told

    def _module(self, module: torch.nn.Module) -> str:
        tables = []
        for name in MODULE_TABLES:
            entries = vars(module)[name].items()
            tables.append([(key, x is None, self._modules.get(id(x))) for key, x in entries])
        return f"{self._class(type(module))} {tables}"

    def _numbers(self, numbers: Sequence[int], place: str) -> list[Any]:
        return [self.places.get(f"{place}({dim})", n) for dim, n in enumerate(numbers)]

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        stride = self._numbers(tensor.stride(), f"{path}.stride") if tensor.layout is torch.strided else []
        look = [
            self._numbers(tensor.shape, f"{path}.size"), stride, str(tensor.dtype),
            str(tensor.device), str(tensor.layout), tensor.requires_grad, tensor.is_leaf, tensor.is_inference(),
        ]  # fmt: skip
        text = f"{self._class(type(tensor))} {look}"
        if not _torch.is_traceable_wrapper_subclass(tensor):
            return text
        names, context = tensor.__tensor_flatten__()
        inner = []
        for name in names:
            with at(f".{name}"):
                inner.append(f"{name}: {self._inner(getattr(tensor, name), f'{path}.{name}')}")
        with at("context"):
            told = self._value(SubclassCreationMeta.masked(context, path, self.places))
            return f"{text} {{{', '.join(inner)}}} {tensor.storage_offset()} {told}"

    def _inner(self, value: object, path: str) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return f"[{', '.join(self._inner(x, f'{path}[{i}]') for i, x in enumerate(value))}]"
        if isinstance(value, dict) and type(value) is dict:
            parts = (f"{key!r}: {self._inner(x, f'{path}[{key!r}]')}" for key, x in value.items())
            return f"{{{', '.join(parts)}}}"
        return self._value(value)

    def _histories(self) -> str:
        by_base: dict[int, list[str]] = {}
        for i, value in enumerate(self.arguments.values):
            by_base.setdefault(id(autograd_base(value)), []).append(self.arguments.path_of(i))
        return str([views for views in by_base.values() if len(views) > 1])


def _is_hash_of(node: kinds.Node, holder: object) -> bool:
    """Whether a number is the hash of the object that holds it. Of texts, Python draws other hashes in each process."""
    if not isinstance(node, kinds.ValueAt) or type(node.value) is not int or abs(node.value) < 1 << 32:
        return False
    try:
        return hash(holder) == node.value
    except Exception as error:  # of any class
        pass_on_interruption(error)
        return False
