"""Objects of classes that a call of a metaclass has made: their tensors are inputs, and their values are compared."""

from __future__ import annotations

import abc
from typing import Any

import pytest
import torch
from torch import Tensor

from subclass_aot import aot_compile


class Holder(metaclass=abc.ABCMeta):  # noqa: B024  # only its metaclass counts
    """A class of the user's."""

    def __init__(self, x: Tensor, factor: float) -> None:
        self.x, self.factor = x, factor

    def scaled(self) -> Tensor:
        return self.x * self.factor


class Meta(abc.ABCMeta):
    """It makes a class for each set of bases, as batches of graphs have it."""

    def __call__(cls, *args: Any) -> Any:
        made = cls if cls.__name__ == "Made" else Meta("Made", (cls,), {})
        return super(Meta, made).__call__(*args)


class Batch(Holder, metaclass=Meta):
    """It is never made itself."""


def made_by_a_call(x: Tensor, factor: float) -> Any:
    return abc.ABCMeta("Made", (Holder,), {})(x, factor)


def of_a_tuple(x: Tensor, factor: float) -> Any:
    cls = abc.ABCMeta("Pair", (tuple,), {"scaled": lambda self: self.x * self.factor})
    made: Any = cls((1, 2))
    made.x, made.factor = x, factor
    return made


def of_a_dict(x: Tensor, factor: float) -> Any:
    cls = abc.ABCMeta("Table", (dict,), {"scaled": lambda self: self["x"] * self["factor"]})
    return cls(x=x, factor=factor)


def with_slots(x: Tensor, factor: float) -> Any:
    names = {"__slots__": ("x", "factor"), "scaled": lambda self: self.x * self.factor}
    made: Any = abc.ABCMeta("Slots", (abc.ABC,), names)()
    made.x, made.factor = x, factor
    return made


KINDS = {
    "a call": made_by_a_call,
    "a metaclass": Batch,
    "attributes of a tuple": of_a_tuple,
    "a dict": of_a_dict,
    "slots": with_slots,
}


def put(holder: Any, name: str, value: object) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_put_into_one_is_seen(name: str) -> None:
    holder = KINDS[name](torch.ones(3), 2.0)
    weight = torch.ones(3, requires_grad=True)
    compiled = aot_compile(lambda holder, w: holder.scaled() * w)
    for attribute, value in [("x", torch.full((3,), 4.0)), ("factor", 5.0), ("x", torch.ones(5)[:3])]:
        expected = holder.scaled() * weight
        torch.testing.assert_close(compiled(holder, weight), expected)
        put(holder, attribute, value)
    assert len(compiled.recompiles) == 1, compiled.recompiles


@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_into_one_is_seen(name: str) -> None:
    def program(holder: Any) -> Tensor:
        put(holder, "x", holder.scaled() + 1)
        return holder.scaled() * 2

    mine, other = (KINDS[name](torch.ones(3), 2.0) for _ in range(2))
    compiled = aot_compile(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(mine), program(other))


def test_the_function_itself_may_be_one() -> None:
    names = {"__call__": lambda self, w: self.x * w}
    function: Any = abc.ABCMeta("Function", (abc.ABC,), names)()
    function.x = torch.ones(3)
    compiled = aot_compile(function)
    compiled(torch.ones(3))
    function.x = torch.full((3,), 7.0)
    assert compiled(torch.ones(3)).tolist() == [7, 7, 7]
