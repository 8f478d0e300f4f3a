"""Random trees of Python objects, and random changes of what stands in one, for `test_agreement_of_objects.py`."""

from __future__ import annotations

import dataclasses
import enum
import functools
import random
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import torch
from torch import nn

from subclass_aot import TwoTensor


class User: ...


class Sub(User):
    level = 1


METHODS: tuple[Any, ...] = (
    lambda self: 1, lambda self: 2, staticmethod(lambda: 3), classmethod(lambda cls: 4), property(lambda self: 5)
)  # fmt: skip


class Slots:
    __slots__ = ("a", "b")


class SlotsAndMore(Slots): ...


class OwnList(list[Any]): ...


class OwnDict(dict[Any, Any]): ...


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Data:
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return self.value


def first(*args: Any, **kwargs: Any) -> Any:
    return args[0]


class Net(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.weight, self.value = nn.Parameter(torch.ones(2)), value
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("empty", None)


def hook(module: Any, args: Any, output: Any) -> None: ...


ATOMS = (
    0, 1, 2, 1.0, True, False, None, "a", "b", 0.0, -0.0, float("nan"), (1, 2), (1, 2.0), b"x", torch.float32,
    torch.float64, int, float, Color.RED, Color.BLUE, frozenset({1}), len, torch.Size([1]), User, first,
)  # fmt: skip
KEYS = ("a", "b", "c", 1, 2, 1.0, True, (1, 2), None, Color.RED, int)
NAMES = ("a", "b", "c")


class Maker:
    """Makes trees.

    Args:
        draw: What it draws with.

    Attributes:
        referents: What weak references lead to.
    """

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.referents: list[Any] = []
        self._made: list[Any] = []
        self._depth = 0

    def value(self) -> Any:
        """Makes an object, or takes one that was made."""
        if self._depth > 3 or self.draw.random() < 0.35:
            return self.draw.choice(ATOMS)
        if self._made and self.draw.random() < 0.15:
            return self.draw.choice(self._made)
        self._depth += 1
        made = self.draw.choice(self._makers())()
        self._depth -= 1
        self._made.append(made)
        return made

    def _makers(self) -> tuple[Callable[[], Any], ...]:
        draw, filled = self.draw, self._filled
        return (
            self._many, self._items, self._tensor, self._tensor, self._function, self._net, self._reference,
            lambda: set(draw.sample([1, 2, 3.0, "a", None], draw.randrange(4))),
            lambda: deque(self._many(), draw.choice([None, 5])),
            lambda: OrderedDict(self._items()),
            lambda: defaultdict(draw.choice([int, list, None]), self._items()),
            lambda: filled(types.SimpleNamespace()), lambda: filled(User()), lambda: filled(Sub()),
            lambda: filled(Slots()), lambda: filled(SlotsAndMore()),
            lambda: OwnList(self._many()), lambda: OwnDict(self._items()), lambda: tuple(self._many()),
            lambda: Pair(self.value(), self.value()), lambda: Data(self.value(), self.value()),
            lambda: Frozen(self.value()), lambda: Box(self.value()).read,
            lambda: functools.partial(first, *self._many(), **{draw.choice(NAMES): self.value()}),
            lambda: numpy.array([1.0, draw.choice([1, 2])]), lambda: TwoTensor(torch.ones(2), torch.ones(2)),
            lambda: torch.Generator().manual_seed(draw.randrange(3)),
            lambda: {filled(User()): self.value()}, lambda: {torch.ones(1): self.value(), "a": 1},
            lambda: {filled(User()), 1}, lambda: weakref.WeakSet([self._kept()]),
            lambda: weakref.WeakValueDictionary({1: self._kept()}),
        )  # fmt: skip

    def _many(self) -> list[Any]:
        return [self.value() for _ in range(self.draw.randrange(4))]

    def _items(self) -> dict[Any, Any]:
        return {self.draw.choice(KEYS): self.value() for _ in range(self.draw.randrange(4))}

    def _filled(self, made: Any) -> Any:
        for name in NAMES:
            if self.draw.random() < 0.5 and not (type(made) is Slots and name == "c"):
                setattr(made, name, self.value())
        return made

    def _kept(self) -> Any:
        self.referents.append(self._filled(User()))
        return self.referents[-1]

    def _reference(self) -> Any:
        return weakref.ref(self._kept())

    def _tensor(self) -> torch.Tensor:
        made: Any = torch.ones(self.draw.choice([2, 3]), dtype=self.draw.choice([torch.float32, torch.float64]))
        if self.draw.random() < 0.3:
            made.note = self.value()
        return made  # type: ignore[no-any-return]

    def _function(self) -> Any:
        held, default = self.value(), self.value()

        def function(x: Any = default) -> Any:
            return held

        if self.draw.random() < 0.3:
            function.note = self.value()  # type: ignore[attr-defined]
        return function

    def _net(self) -> Net:
        made = Net(self.value())
        if self.draw.random() < 0.3:
            made.register_forward_hook(hook)
        if self.draw.random() < 0.3:
            made.child = Net(1)
        return made

    def change(self, root: object) -> None:
        """Changes something in a tree."""
        value, draw = self.draw.choice(list(_changing(root))), self.draw
        match value:
            case list() | deque():
                self._change_elements(value)
            case dict():
                self._change_items(value)
            case set():
                draw.choice([lambda: value.add("z"), value.clear])()
            case Net():
                self._change_module(value)
            case types.FunctionType():
                self._change_function(value)
            case torch.Tensor():
                draw.choice([lambda: setattr(value, "note", self.value()), lambda: value.requires_grad_()])()
            case Sub() if draw.random() < 0.4:
                Sub.level = draw.choice([1, 2])
            case Sub() if draw.random() < 0.4:
                setattr(draw.choice([Sub, User]), draw.choice(["read", "late"]), draw.choice(METHODS))
            case Color() if draw.random() < 0.4:
                Color.read = draw.choice(METHODS)
            case _:
                self._change_attributes(value)

    def _change_elements(self, value: Any) -> None:
        draw = self.draw
        what = draw.choice(["append", "turn", "set", "delete", "repeat"]) if value else "append"
        match what:
            case "append":
                value.append(self.value())
            case "turn":
                value.reverse()
            case "set":
                value[draw.randrange(len(value))] = self.value()
            case "delete":
                del value[draw.randrange(len(value))]
            case "repeat":
                value[0] = value[-1]

    def _change_items(self, value: dict[Any, Any]) -> None:
        draw, keys = self.draw, list(value)
        match draw.choice(["turn", "set", "delete", "repeat"]) if keys else "add":
            case "add":
                value[draw.choice(KEYS)] = self.value()
            case "turn":
                value[keys[0]] = value.pop(keys[0])
            case "set":
                value[draw.choice(keys)] = self.value()
            case "delete":
                del value[keys[0]]
            case "repeat":
                value[keys[0]] = value[keys[-1]]

    def _change_attributes(self, value: Any) -> None:
        name = self.draw.choice(NAMES)
        held = getattr(value, "__dict__", {})
        match self.draw.choice(["set", "delete", "turn"]):
            case "set" if held or not isinstance(value, Slots) or name != "c":
                setattr(value, name, self.value())
            case "delete" if hasattr(value, name):
                delattr(value, name)
            case "turn" if held:
                key = next(iter(held))
                held[key] = held.pop(key)

    def _change_module(self, value: Any) -> None:
        self.draw.choice(
            [
                lambda: value.train(not value.training),
                lambda: value.register_forward_hook(hook),
                lambda: value.register_forward_pre_hook(lambda module, args: None),
                lambda: value._forward_hooks.clear(),
                lambda: setattr(value, "mean", None),
                lambda: value.register_buffer("other", torch.ones(1)),
                lambda: value._buffers.update(mean=value._buffers.pop("mean")),
                lambda: setattr(value, "child", Net(2)),
                lambda: setattr(value, "extra", self.value()),
                lambda: setattr(value, "weight", nn.Parameter(torch.ones(2))),
                lambda: value.weight.requires_grad_(False),
            ]
        )()

    def _change_function(self, value: Any) -> None:
        match self.draw.choice(["attribute", "default", "cell"]):
            case "attribute":
                value.other = self.value()
            case "default" if value.__defaults__:
                value.__defaults__ = (self.value(),)
            case "cell" if value.__closure__:
                value.__closure__[0].cell_contents = self.value()


_CHANGING = (
    list, deque, dict, set, Net, types.FunctionType, torch.Tensor, types.SimpleNamespace, User, Slots, Data, Box,
)  # fmt: skip


def _changing(root: object) -> Iterator[Any]:
    """Yields what can be changed in a tree."""
    seen: dict[int, object] = {}
    ahead = [root]
    while ahead:
        value = ahead.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            ahead += _parts(value)
            if isinstance(value, _CHANGING) and value is not first:
                yield value


def _parts(value: Any) -> list[Any]:
    match value:
        case type() | enum.Enum() | weakref.WeakSet() | weakref.WeakValueDictionary():
            return []
        case list() | tuple() | deque() | set():
            return [*value]
        case dict():
            return [*value, *value.values()]
        case Net():
            return [*value.parameters(False), *value.buffers(False), *value.children(), value.value]
        case types.FunctionType():
            return [*(cell.cell_contents for cell in value.__closure__ or ()), *(value.__defaults__ or ())]
        case types.MethodType():
            return [value.__self__]
        case functools.partial():
            return [*value.args, *value.keywords.values()]
        case weakref.ref():
            return [value()]
    slots = [getattr(value, name) for name in ("a", "b") if isinstance(value, Slots) and hasattr(value, name)]
    return [*slots, *getattr(value, "__dict__", {}).values()]
