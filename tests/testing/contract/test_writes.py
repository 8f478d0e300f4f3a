"""Clause 23, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.contract.classes import OURS, Held, Scaled, aten, broken, held, scaled

ONLY = (23,)


class SharedScale(Scaled):
    """Values of a part change the scale of the whole rows."""


@SharedScale.implements(aten.zero_.default)
def _(x: Any) -> Any:
    x.codes.fill_(1)
    x.scale.zero_()
    return x


class OtherObject(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.mul_.Tensor:
            return cls(args[0].held * args[1])
        return super().__torch_dispatch__(func, types, args, kwargs)


class ForgetsOut(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and "out" in kwargs:
            return kwargs["out"]
        return super().__torch_dispatch__(func, types, args, kwargs)


class CopiesWrong(Scaled):
    """`copy_` of another of the class takes the scale, and leaves the codes."""


@CopiesWrong.implements(aten.copy_.default)
def _(x: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(source, CopiesWrong):
        return NotImplemented
    x.scale.copy_(source.scale)
    return x


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_classes() -> None:
    assert broken(held(Held), ONLY) == {}
    assert broken(scaled(Scaled), ONLY) == {}


def test_write_to_columns_that_changes_the_rows() -> None:
    found = broken(scaled(SharedScale), ONLY)
    assert set(found) == {"write to some columns", "write to a transposed view"}
    assert all("the whole tensor has wrong values" in why for why in found.values())


def test_another_object_in_place() -> None:
    found = broken(held(OtherObject), ONLY)
    assert set(found) == {"x.mul_(2)", "write to some columns, larger"}
    assert "the tensor has wrong values" in found["x.mul_(2)"]


def test_out_that_is_not_written() -> None:
    found = broken(held(ForgetsOut), ONLY)
    assert set(found) == {"out="} and "out has wrong values" in found["out="]


def test_copy_that_forgets_a_field() -> None:
    found = broken(scaled(CopiesWrong), ONLY)
    assert "x.copy_(x)" in found and "the tensor has wrong values" in found["x.copy_(x)"]
