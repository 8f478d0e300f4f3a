"""Random calls of one function, drawn by what a signature depends on, for `test_agreement.py`."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor


class Tagged(torch.Tensor):
    """A wrapper of no declaration: its context is a list with whatever it was given."""

    inner: torch.Tensor
    tag: Any

    @staticmethod
    def __new__(cls, inner: torch.Tensor, tag: Any = 1, start: int = 0) -> Tagged:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, inner.size(), strides=inner.stride(), storage_offset=start, dtype=inner.dtype,
            requires_grad=inner.requires_grad,
        )  # fmt: skip

    def __init__(self, inner: torch.Tensor, tag: Any = 1, start: int = 0) -> None:
        self.inner, self.tag, self.start = inner, tag, start

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], [self.tag, self.start]

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Tagged:
        return Tagged(inner["inner"], *context)

    @classmethod
    def __torch_dispatch__(cls, op: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(x for x in args if isinstance(x, Tagged))
        inside = [x.inner if isinstance(x, Tagged) else x for x in args]
        result = op(*inside, **(kwargs or {}))
        return first if op._schema.is_mutable else Tagged(result, first.tag, first.start)


class Plain(torch.Tensor):
    """A subclass that wraps nothing."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


class Simple(Tagged):
    """A wrapper of another library of which a guard compares attributes, since its context is made of these."""

    def __new__(cls, inner: torch.Tensor, tag: Any = 1) -> Simple:
        return Tagged.__new__(cls, inner)  # type: ignore[return-value]

    def __init__(self, inner: torch.Tensor, tag: Any = 1) -> None:
        self.inner, self.tag = inner, tag

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], (self.tag,)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Simple:
        return Simple(inner["inner"], *context)

    @classmethod
    def __torch_dispatch__(cls, op: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(x for x in args if isinstance(x, Simple))
        inside = [x.inner if isinstance(x, Simple) else x for x in args]
        result = op(*inside, **(kwargs or {}))
        return first if op._schema.is_mutable else Simple(result, first.tag)


class Optional(WrapperTensor, fallback="each"):
    """A declared class with a tensor that may not be there, and a context."""

    a: torch.Tensor
    b: torch.Tensor | None
    tag: Any = None


@dataclasses.dataclass(frozen=True)
class Rounding:
    """A context that can be called."""

    bits: int

    def __call__(self, x: Any) -> Any:
        return x


def two(x: torch.Tensor) -> torch.Tensor:
    return TwoTensor(x.detach(), x.detach() + 1).requires_grad_(x.requires_grad)


def with_scale(x: Any, scale: int) -> Any:
    x.inner.scale = scale
    return x


HELD: list[int] = [1]
"""A context that is the same object at each call, and changes."""

TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x,
    "two": two,
    "int8": lambda x: Int8Weight.from_float(x.detach()),
    "tagged": lambda x: Tagged(x.detach()),
    "tagged 2": lambda x: Tagged(x.detach(), 2),
    "tagged list": lambda x: Tagged(x.detach(), [1]),
    "tagged other list": lambda x: Tagged(x.detach(), [2]),
    "tagged held": lambda x: Tagged(x.detach(), HELD),
    "tagged later": lambda x: Tagged(x.detach(), 1, 2),
    "parameter": lambda x: nn.Parameter(x.detach(), x.requires_grad),
    "plain": lambda x: x.detach().as_subclass(Plain).requires_grad_(x.requires_grad),
    "nested": lambda x: TwoTensor(two(x.detach()), two(x.detach())),
    "nested half": lambda x: TwoTensor(two(x.detach()), x.detach() + 1),
    "of two dtypes": lambda x: TwoTensor(x.detach(), x.detach().double() + 1),
    "of two tensors that are one": lambda x: TwoTensor(x.detach(), x.detach()),
    "later in a wrapper": lambda x: TwoTensor(two(torch.arange(5.0, dtype=x.dtype))[1:4], two(x.detach())),
    "optional": lambda x: Optional(x.detach(), x.detach() + 1),
    "optional, absent": lambda x: Optional(x.detach(), None),
    "optional 1": lambda x: Optional(x.detach(), None, 1),
    "optional 1.0": lambda x: Optional(x.detach(), None, 1.0),
    "optional rounding": lambda x: Optional(x.detach(), None, Rounding(4)),
    "optional rounding, other bits": lambda x: Optional(x.detach(), None, Rounding(3)),
    "simple": lambda x: Simple(x.detach(), 1),
    "simple True": lambda x: Simple(x.detach(), True),
    "simple list": lambda x: Simple(x.detach(), [1]),
    "simple rounding": lambda x: Simple(x.detach(), Rounding(4)),
    "simple rounding, other bits": lambda x: Simple(x.detach(), Rounding(3)),
    "simple class": lambda x: Simple(x.detach(), Rounding),
    "simple, inside with an attribute": lambda x: with_scale(Simple(x.detach(), 1), 1),
    "tagged rounding": lambda x: Tagged(x.detach(), Rounding(4)),
    "tagged rounding, other bits": lambda x: Tagged(x.detach(), Rounding(3)),
    "tagged nested": lambda x: Tagged(two(x.detach())),
}
"""What the first argument is."""

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda x: x.clone(),
    "fresh": lambda x: torch.ones(3) * x[0],
    "front": lambda x: x[:3],
    "unrecorded": lambda x: torch.no_grad()(lambda: x[:3])(),
    "split": lambda x: x.split([3, x.numel() - 3])[0],
    "unsafe split": lambda x: x.unsafe_split_with_sizes([3, x.numel() - 3])[0],
    "detached": lambda x: x.detach()[:3],
    "back": lambda x: x[1:4],
    "steps": lambda x: x[:6:2],
    "expanded": lambda x: x[:1].expand(3),
    "negative": lambda x: torch._neg_view(x[:3]),
    "conjugate": lambda x: x[:3].to(torch.complex64).conj().real,
    "as strided": lambda x: x.as_strided((3,), (1,), 2),
    "row": lambda x: x[:3].unsqueeze(0),
    "another storage": lambda x: x[:3].clone()[:],
    "front of another storage": lambda x: x.clone()[:3],
    "own history": lambda x: x.detach()[1:4].mul_(torch.ones(3, dtype=x.dtype, requires_grad=x.requires_grad)),
}
"""How an argument is taken of a base."""

MODES: dict[str, Callable[[], Any]] = {
    "none": ExitStack,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "double": lambda: default_dtype(torch.float64),
    "deterministic": lambda: deterministic(),
}

CHOICES: dict[str, tuple[Any, ...]] = {
    "program": ("reads", "writes", "begins", "appends"),
    "kind": tuple(TENSORS),
    "view": tuple(VIEWS),
    "other": (*(name for name in VIEWS if name != "unrecorded"), "same"),  # eager mode refuses to write that
    "held context": (1, 2),
    "length": (8, 9),
    "requires grad": (False, True),
    "non-leaf": (False, True),
    "born": ("normal", "inference"),
    "dtype": (torch.float32, torch.float64),
    "mode": tuple(MODES),
    "attribute": (None, 1, 1.0, 2),
    "attribute of the weight": (None, 1, 2),
    "training": (True, False),
    "child": ("tanh", "relu", "gelu"),
    "hook": (None, "doubles", "adds", "both"),
    "hook of all modules": (None, "doubles", "adds"),
    "order of children": ("first", "last"),
    "child that stands twice": ("other", "child"),
    "the weight requires grad": (True, False),
    "bias": (True, False),
    "module attribute": (None, 1, 2),
    "objects": (
        "list",
        "longer",
        "dict",
        "turned dict",
        "namespace",
        "other namespace",
        "empty",
        "deque",
        "short deque",
        "ordered",
        "turned ordered",
        "default dict",
        "other default dict",
        "slots",
        "other slots",
        "empty slots",
        "set",
        "larger set",
        "set of other numbers",
        "own number",
        "own number with more",
        "array",
        "other array",
        "array of another dtype",
        "partial",
        "other partial",
        "tuple",
        "other tuple",
        "plain tuple",
        "keys",
        "keys of another class",
        "many",
        "many others",
        "many by name",
        "many by name, turned",
        "method",
        "method of another",
        "bytes",
        "zero",
        "negative zero",
        "not a number",
        "key that is a tensor",
        "another such key",
        "a pair for a key",
        "another pair for a key",
        "two attributes",
        "two attributes, turned",
        "knows the tensor",
        "knows another tensor",
        "an object in a set",
        "another object in a set",
        "a pair with an object in a set",
        "a weak reference",
        "another weak reference",
        "an object for a key",
        "another object for a key",
        "data of a class",
        "other data of a class",
        "more data of a class",
        "an enum",
        "another one of an enum",
        "a method of a metaclass",
        "another method of a metaclass",
        "a property of an enum",
        "another property of an enum",
        "an object of a library",
        "an object of another class of it",
        "a bare object",
        "another bare object",
        "a deque inside",
        "a short deque inside",
        "the first list twice",
        "the second list twice",
        "the first tensor twice",
        "the second tensor twice",
        "a pair inside",
        "a plain tuple inside",
        "a class",
        "another class",
    ),
    "empty buffer": (False, True),
    "number": (1, 1.0, True, 2),
    "shared list": (False, True),
}
"""What a call is drawn from: the first of each is the plainest."""


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Held(nn.Module):
    """A module that the function holds: one object, of which calls differ in what is in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = getattr(self.weight, "scale", 5) * getattr(self, "factor", 7)
        x = x * scale * (2 if self.training else 3)
        child = self._modules["child"]
        assert child is not None
        x = child(x) * (2 + [*self._modules].index("child"))
        x = x * (1 + len(self._buffers)) + (self._modules["again"] is child)
        return x if self._buffers["shift"] is None else x + self._buffers["shift"]


HOOKS = {"doubles": lambda m, a, out: out * 2, "adds": lambda m, a, out: out + 1}


class World:
    """One function and its module; `call` makes the arguments of a call and puts the module into its state."""

    def __init__(self) -> None:
        module = Held()
        module.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.shift = torch.ones(3)
        module.register_buffer("shift", self.shift)
        self.children = {"tanh": nn.Tanh(), "relu": nn.ReLU(), "gelu": nn.GELU()}
        module.add_module("other", nn.Sequential())
        module.add_module("child", self.children["tanh"])
        self.module, self.handle = module, None
        hooks: dict[str, Any] = {None: {}}
        for name, hook in HOOKS.items():
            handle = module.register_forward_hook(hook)
            hooks[name] = dict(module._forward_hooks)
            handle.remove()
        hooks["both"] = hooks["adds"] | hooks["doubles"]
        self.hooks = hooks

        def reads(x: Any, y: Any, objects: Any, number: Any, lists: Any) -> Any:
            return compute(module, x, y, objects, number, lists)

        def writes(x: Any, y: Any, objects: Any, number: Any, lists: Any) -> Any:
            result = compute(module, x, y, objects, number, lists)
            with torch.no_grad() if y.is_leaf and y.requires_grad else ExitStack():
                y.mul_(2)
            return result, y + 1, x + 0

        def begins(x: Any, y: Any, objects: Any, number: Any, lists: Any) -> Any:
            return compute(module, x, y, objects, number, lists) + y.storage_offset()

        def appends(x: Any, y: Any, objects: Any, number: Any, lists: Any) -> Any:
            result = compute(module, x, y, objects, number, lists)
            lists[0].append(2)
            return result + len(lists[1])

        self.programs = {"reads": reads, "writes": writes, "begins": begins, "appends": appends}

    def call(self, choices: dict[str, Any]) -> tuple[Any, ...]:
        """Makes the arguments, and gives the module the state of these choices."""
        HELD[0] = choices["held context"]
        make = torch.inference_mode if choices["born"] == "inference" else ExitStack
        with make():
            base = torch.arange(1.0, choices["length"] + 1, dtype=choices["dtype"])
            if choices["requires grad"]:
                base = base.requires_grad_()
                if choices["non-leaf"]:
                    base = base * 1
            first = VIEWS[choices["view"]](base)
            other = first if choices["other"] == "same" else VIEWS[choices["other"]](base)
            first = first if choices["view"] != "all" else first[:3].clone()
            other = other if choices["other"] != "all" else other[:3].clone()
            if first.numel() != other.numel():
                other = other[: first.numel()]
            x = TENSORS[choices["kind"]](first)
            y = x if choices["other"] == "same" else other
        if choices["attribute"] is not None:
            x.scale = choices["attribute"]  # type: ignore[attr-defined]
        module = self.module
        module.train(choices["training"])
        module._modules["child"] = self.children[choices["child"]]
        module._buffers["shift"] = self.shift if choices["bias"] else None
        for name in ("child", "other") if choices["order of children"] == "last" else ("other", "child"):
            module._modules[name] = module._modules.pop(name)
        module._modules.pop("again", None)
        module._modules["again"] = module._modules[choices["child that stands twice"]]
        module._buffers.pop("empty", None)
        if choices["empty buffer"]:
            module.register_buffer("empty", None)
        module.weight.requires_grad_(choices["the weight requires grad"])
        nn.modules.module._global_forward_hooks.clear()
        for hook in filter(None, [choices["hook of all modules"]]):
            nn.modules.module._global_forward_hooks.update(self.hooks[hook])
        module._forward_hooks.clear()
        module._forward_hooks.update(self.hooks[choices["hook"]])
        for holder, name, key in (
            (module, "factor", "module attribute"),
            (module.weight, "scale", "attribute of the weight"),
        ):
            vars(holder).pop(name, None)
            if choices[key] is not None:
                vars(holder)[name] = choices[key]
        one, two = [1], [1]
        return x, y, OBJECTS[choices["objects"]](), choices["number"], [one, one if choices["shared list"] else two]


class Slots:
    __slots__ = ("value",)

    def __init__(self, *value: int) -> None:
        for x in value:
            self.value = x

    def read(self) -> int:
        return self.value


class OwnNumber(int): ...


KNOWN = torch.ones(1)


class Knows:
    def __init__(self, known: torch.Tensor, other: Any) -> None:
        self.numbers, self.other = {id(known): 1}, other


KEY, OTHER_KEY = Knows(KNOWN, 1), Knows(KNOWN, 2)


BARE, OTHER_BARE = types.SimpleNamespace(), types.SimpleNamespace()


OfLibrary, OtherOfLibrary = (type(name, (), {"__module__": "torch.nn.other"}) for name in ("One", "Another"))


def own(cls: Any, of: int) -> Any:
    """Makes an object of a class that has no constructor of its own."""
    made = cls()
    made.of = of
    return made


def one_twice(*values: Any) -> list[Any]:
    """Lists two values, and one of them, by its position, a second time."""
    return [*values[:2], values[values[2]]]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class WithData:
    size = 1


class Meta(type):
    def one(cls) -> int:
        return 1

    def other(cls) -> int:
        return 2


class Made(metaclass=Meta): ...


PairOfLibrary = collections.namedtuple("PairOfLibrary", "one other", module="torch.nn.other")
PROPERTIES = property(lambda self: 1), property(lambda self: 2)


def with_data(**data: int) -> WithData:
    for name in [name for name in vars(WithData) if not name.startswith("__")]:
        delattr(WithData, name)
    for name, value in data.items():
        setattr(WithData, name, value)
    return WithData()


class Pair(NamedTuple):
    one: int
    other: list[int]


def own_number(value: int) -> OwnNumber:
    made: Any = OwnNumber(value)
    made.unit = "m"
    return made


def turned() -> Any:
    made = OrderedDict(a=1, b=2)
    made.move_to_end("a")
    return made


def scaled(x: Any, by: int) -> Any:
    return x * by


OBJECTS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2],
    "longer": lambda: [1, 2, 3],
    "dict": lambda: types.SimpleNamespace(of={"a": 1, "b": 2}),
    "turned dict": lambda: types.SimpleNamespace(of={"b": 2, "a": 1}),
    "namespace": lambda: types.SimpleNamespace(of=torch.ones(3)),
    "other namespace": lambda: types.SimpleNamespace(of=torch.ones(3), more=1),
    "empty": lambda: types.SimpleNamespace(),
    "deque": lambda: deque([1, 2]),
    "short deque": lambda: deque([1, 2], maxlen=2),
    "ordered": lambda: OrderedDict(a=1, b=2),
    "turned ordered": turned,
    "default dict": lambda: defaultdict(int, a=1),
    "other default dict": lambda: defaultdict(float, a=1),
    "slots": lambda: Slots(1),
    "other slots": lambda: Slots(2),
    "empty slots": lambda: Slots(),
    "set": lambda: {1, 2},
    "larger set": lambda: {1, 2, 3},
    "set of other numbers": lambda: {1, 2.0},
    "own number": lambda: OwnNumber(3),
    "own number with more": lambda: own_number(3),
    "array": lambda: numpy.array([1.0, 2.0]),
    "other array": lambda: numpy.array([1.0, 3.0]),
    "array of another dtype": lambda: numpy.array([1, 2]),
    "partial": lambda: functools.partial(scaled, by=1),
    "other partial": lambda: functools.partial(scaled, by=2),
    "tuple": lambda: Pair(1, [2]),
    "other tuple": lambda: Pair(1, [3]),
    "plain tuple": lambda: (1, [2]),
    "keys": lambda: {1: 1, 2: 2},
    "keys of another class": lambda: {1.0: 1, 2: 2},
    "many": lambda: list(range(20)),
    "many others": lambda: [*range(19), 20],
    "many by name": lambda: {f"n{i}": i for i in range(20)},
    "many by name, turned": lambda: {f"n{i}": i for i in reversed(range(20))},
    "method": lambda: Slots(1).read,
    "method of another": lambda: Slots(2).read,
    "bytes": lambda: b"ab",
    "zero": lambda: [0.0],
    "negative zero": lambda: [-0.0],
    "not a number": lambda: [float("nan")],
    "key that is a tensor": lambda: {torch.ones(1): 1, "a": 2},
    "another such key": lambda: {"a": 2, torch.ones(1): 1},
    "a pair for a key": lambda: types.SimpleNamespace(of={(1, 2): 1}),
    "another pair for a key": lambda: types.SimpleNamespace(of={(1, 2.0): 1}),
    "an object in a set": lambda: Knows(KNOWN, {KEY}),
    "another object in a set": lambda: Knows(KNOWN, {OTHER_KEY}),
    "a pair with an object in a set": lambda: Knows(KNOWN, {(1, KEY)}),
    "a weak reference": lambda: Knows(KNOWN, weakref.ref(KEY)),
    "another weak reference": lambda: Knows(KNOWN, weakref.ref(OTHER_KEY)),
    "an object for a key": lambda: Knows(KNOWN, {KEY: 1}),
    "another object for a key": lambda: Knows(KNOWN, {OTHER_KEY: 1}),
    "data of a class": lambda: with_data(size=1),
    "other data of a class": lambda: with_data(size=2),
    "more data of a class": lambda: with_data(size=1, more=1),
    "an enum": lambda: Knows(KNOWN, Color.RED),
    "another one of an enum": lambda: Knows(KNOWN, Color.BLUE),
    "a method of a metaclass": lambda: (setattr(Meta, "unused", Meta.one), own(Made, 1))[1],
    "another method of a metaclass": lambda: (setattr(Meta, "unused", Meta.other), own(Made, 1))[1],
    "a property of an enum": lambda: (setattr(Color, "note", PROPERTIES[0]), Knows(KNOWN, Color.RED))[1],
    "another property of an enum": lambda: (setattr(Color, "note", PROPERTIES[1]), Knows(KNOWN, Color.RED))[1],
    "two attributes": lambda: types.SimpleNamespace(a=1, b=2),
    "two attributes, turned": lambda: types.SimpleNamespace(b=2, a=1),
    "knows the tensor": lambda: Knows(KNOWN, KNOWN),
    "knows another tensor": lambda: Knows(KNOWN, torch.ones(1)),
    "an object of a library": lambda: own(OfLibrary, 1),
    "an object of another class of it": lambda: own(OtherOfLibrary, 1),
    "a bare object": lambda: BARE,
    "another bare object": lambda: OTHER_BARE,
    "a deque inside": lambda: Knows(KNOWN, deque([1])),
    "a short deque inside": lambda: Knows(KNOWN, deque([1], 2)),
    "the first list twice": lambda: Knows(KNOWN, one_twice([1], [1], 0)),
    "the second list twice": lambda: Knows(KNOWN, one_twice([1], [1], 1)),
    "the first tensor twice": lambda: Knows(KNOWN, one_twice(torch.ones(1), torch.ones(1), 0)),
    "the second tensor twice": lambda: Knows(KNOWN, one_twice(torch.ones(1), torch.ones(1), 1)),
    "a pair inside": lambda: Knows(KNOWN, PairOfLibrary(1, [2])),
    "a plain tuple inside": lambda: Knows(KNOWN, (1, [2])),
    "a class": lambda: Knows(KNOWN, int),
    "another class": lambda: Knows(KNOWN, float),
}


def number_in(value: Any) -> int:
    """What is known of what an object has beside numbers."""
    if isinstance(value, deque):
        return value.maxlen or 0
    if isinstance(value, list):
        return int(value[2] is value[0])
    return len(value.__name__ if isinstance(value, type) else type(value).__name__)


def number_of(tag: Any) -> int:
    """What a context counts for."""
    return tag.bits if isinstance(tag, Rounding) else tag


def compute(module: nn.Module, x: Any, y: Any, objects: Any, number: Any, lists: Any) -> Any:
    """Reads all that calls differ in."""
    scale = getattr(x, "scale", 11) + len(lists[1]) + number * (3 if type(number) is int else 4)
    if isinstance(objects, list):
        scale = scale + sum(objects) * len(objects)
    elif isinstance(objects, dict | deque):
        scale = scale + [*(objects.values() if isinstance(objects, dict) else objects)][0]
    elif isinstance(objects, Slots):
        scale = scale * getattr(objects, "value", 3)
    elif isinstance(objects, functools.partial | types.MethodType):
        scale = objects(scale) if isinstance(objects, functools.partial) else scale * objects()
    elif isinstance(objects, set | tuple | OwnNumber | numpy.ndarray):
        parts = objects if not isinstance(objects, OwnNumber) else (objects, getattr(objects, "unit", ""))
        scale = scale + len(repr(parts))
    for name, value in vars(objects).items() if isinstance(objects, types.SimpleNamespace) else ():
        for part in value.items() if isinstance(value, dict) else [(name, value)]:
            scale = scale * 2 + part[1] * len(part[0])
    scale = scale + (number_in(objects.other) if isinstance(objects, Knows) else len(type(objects).__name__))
    if hasattr(x, "__tensor_flatten__"):
        tag = x.__tensor_flatten__()[1]
        if isinstance(tag, list):
            scale = scale + (tag[0][0] * 10 if isinstance(tag[0], list) else number_of(tag[0])) + x.storage_offset()
        elif isinstance(tag, tuple):
            scale = scale + len(repr(tag))
    return module(x * scale) + torch.tensor([0.5]).to(torch.get_default_dtype()) + torch.ones(3)
