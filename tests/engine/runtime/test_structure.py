"""Two modules of one structure run one compiled function: what is equal, what is not, and when it is read again."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Fact, Kind, facts_of, global_state
from subclass_aot.engine.facts.fact import Constant
from subclass_aot.engine.runtime import Structure


class Config:
    def __init__(self, width: int) -> None:
        self.width = width
        self.zero = 0.0


class Slots:
    __slots__ = ("width",)

    def __init__(self) -> None:
        self.width = 4


def hook(*args: object) -> None: ...


def closure(number: int) -> Callable[..., int]:
    return lambda *args: number


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(()))
        self.index = 3
        self.eps = 1e-5
        self.config = Config(4)
        self.modes = ["a", {"b": 1}]
        self.kinds = {1, 2}
        self.act = nn.functional.relu
        self.slots = Slots()
        self.table = {"a": 1, "b": 2}
        self.itself = self.modes
        self.modes.append(self.modes)

    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x)


def key(change: Callable[[Any], object] = lambda block: None) -> Any:
    block = Block()
    change(block)
    return Structure(block).key


def test_modules_that_were_made_alike_have_one_structure() -> None:
    assert key() == key()


OTHER: dict[str, Callable[[Any], object]] = {
    "an attribute": lambda b: setattr(b, "other", []),
    "the sign of a zero": lambda b: setattr(b.config, "zero", -0.0),
    "a part of an object": lambda b: setattr(b.config, "width", 5),
    "an element of a list": lambda b: b.modes.insert(0, "c"),
    "a value of a dict": lambda b: b.modes[1].update(b=True),
    "an element of a set": lambda b: b.kinds.add(3),
    "a function": lambda b: setattr(b, "act", torch.relu),
    "a method": lambda b: setattr(b, "act", b.linear.forward),
    "a hook of a submodule": lambda b: b.linear.register_forward_hook(lambda *args: None),
    "a submodule": lambda b: b.add_module("more", nn.ReLU()),
    "the class of a submodule": lambda b: setattr(b, "linear", nn.Identity()),
    "the name of a buffer": lambda b: b.register_buffer("more", torch.zeros(())),
    "the shape of a parameter": lambda b: setattr(b.linear, "bias", nn.Parameter(torch.zeros(3))),
    "an absent parameter": lambda b: b.linear.register_parameter("bias", None),
    "an object that tells nothing of itself": lambda b: setattr(b, "config", object()),
    "how a hook of a submodule runs": lambda b: b.linear.register_forward_hook(hook, with_kwargs=True),
    "a cell of a closure": lambda b: setattr(b, "act", closure(2)),
    "a slot": lambda b: setattr(b.slots, "width", 5),
    "the order of a dict": lambda b: b.table.update(a=b.table.pop("a")),
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER.keys())
def test_another_structure(change: Callable[[Any], object]) -> None:
    assert key(change) != key()


ALIKE: dict[str, Callable[[Any], object]] = {
    "a number, which stands apart": lambda b: setattr(b, "index", 4),
    "values of a parameter": lambda b: b.linear.weight.data.zero_(),
    "another parameter of the shape": lambda b: setattr(b.linear, "weight", nn.Parameter(torch.zeros(2, 2))),
    "a hook of the module itself": lambda b: b.register_forward_hook(lambda *args: None),
}


@pytest.mark.parametrize("change", ALIKE.values(), ids=ALIKE.keys())
def test_the_same_structure(change: Callable[[Any], object]) -> None:
    assert key(change) == key()


OF_A_CALL = {Kind.STRUCTURE, Kind.MODE, Kind.TENSOR, Kind.LEAF, Kind.STORAGE, Kind.TWICE}
"""What the guard of the compiled function compares, which is given the tensors."""


def test_it_is_what_a_call_depends_on() -> None:
    """But for what is compared at each call, and for modules, which are other objects; classes are facts of these."""
    block = Block()
    block.linear.register_forward_hook(hook)
    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        of_call, structure = facts_of(Arguments.of(block, (), {}), global_state()), Structure(block)
    finally:
        handle.remove()
    apart = {".".join(filter(None, ("self", path, name))) for path, name in structure.scalars}
    facts = [fact for fact in structure.key if isinstance(fact, Fact)]
    here = {(fact.place, fact.kind) for fact in facts}
    left = {(f.place, f.kind) for f in of_call if f.kind not in OF_A_CALL} - here
    assert {place for place, kind in left if kind is not Kind.IDENTITY} == apart
    assert {place for place, kind in left if kind is Kind.IDENTITY} == {"self", "self.linear"}
    assert ("hooks of all modules", Kind.HOOKS) in here and ("self.linear", Kind.NAMES) in here


def test_numbers_and_texts_stand_apart() -> None:
    assert Structure(Block()).scalars["", "index"] == Constant(3)
    assert ("", "modes") not in Structure(Block()).scalars


def test_tensors_are_read_where_they_stand() -> None:
    block = Block()
    structure = Structure(block)
    assert list(structure.tensors()) == ["steps", "linear.weight", "linear.bias"]
    block.linear.weight = nn.Parameter(torch.ones(2, 2))
    assert structure.tensors()["linear.weight"] is block.linear.weight
    del block.linear.weight
    assert structure.tensors()["linear.weight"] is None


ALONE: dict[str, Callable[[Any], object]] = {
    "a tensor beside parameters and buffers": lambda b: setattr(b, "other", torch.ones(2)),
    "one in an object": lambda b: setattr(b.config, "other", torch.ones(2)),
    "a key that is one": lambda b: b.modes[1].update({torch.ones(2): 1}),
    "a module out of sight": lambda b: b.modes.append(nn.Linear(2, 2)),
    "a deque": lambda b: b.modes.append(deque()),
    "an array": lambda b: setattr(b, "other", numpy.ones(2)),
    "an iterator": lambda b: setattr(b, "other", iter([1])),
    "a weak reference": lambda b: setattr(b, "other", weakref.ref(b.config)),
    "a generator of random numbers": lambda b: setattr(b, "other", torch.Generator()),
}


@pytest.mark.parametrize("change", ALONE.values(), ids=ALONE.keys())
def test_what_is_not_shared(change: Callable[[Any], object]) -> None:
    block = Block()
    assert Structure(block).is_shared
    change(block)
    assert not Structure(block).is_shared


OF_TENSORS = ("the shape of a parameter", "an absent parameter")
"""The guards of a compiled function look at these, since it is given the tensors."""


@pytest.mark.parametrize("name", [name for name in OTHER if name not in OF_TENSORS])
def test_what_changes_the_structure_is_seen(name: str) -> None:
    block = Block()
    structure = Structure(block)
    assert structure.still_holds()
    OTHER[name](block)
    assert not structure.still_holds()


def test_other_tensors_in_its_places_are_not_looked_at() -> None:
    block = Block()
    structure = Structure(block)
    block.linear.weight = nn.Parameter(torch.ones(2, 2))
    block.steps.add_(1)
    assert structure.still_holds()
