"""Tensors of plain subclasses in a trace: how they are made, and what they answer without data."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.errors import DataDependentError, SubclassAotError
from subclass_aot.testing import difference
from tests.constants import out_of_sight
from tests.plain_subclasses import Quiet, ScaledParameter, Tag, of_class


def run(fn: Any, *args: Any) -> Any:
    return aot_compile(fn, fw_compiler="eager")(*args)


@pytest.mark.parametrize("cls", [Tag, Quiet])
def test_all_ways_to_make_one(cls: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        made = (
            x.as_subclass(cls),
            cls(x),
            torch.Tensor._make_subclass(cls, x),
            torch.Tensor._make_subclass(cls, x, True),
        )
        return *made, [type(y) is cls for y in made], [y.requires_grad for y in made], torch.nn.Parameter(x * 2)

    x = torch.ones(3)
    expected, got = program(x), run(program, x)
    assert got[4:6] == expected[4:6] and all(expected[4])
    for a, b in zip((*expected[:4], expected[6]), (*got[:4], got[6]), strict=True):
        with torch._C.DisableTorchFunctionSubclass():
            assert not difference(a, b)


@pytest.mark.parametrize("call", [lambda x: x.data_ptr(), lambda x: x.untyped_storage().data_ptr()])
@pytest.mark.parametrize("cls", [Tag, ScaledParameter])
def test_memory_is_refused_as_of_dense_tensors(cls: Any, call: Any) -> None:
    with pytest.raises(DataDependentError, match="a traced tensor has none"):
        run(lambda x: call(x) and x, of_class(cls, False))


@pytest.mark.parametrize("call", [lambda x: x.tolist()[0] < 0, bool, float, lambda x: x.numpy()[0] < 0])
@pytest.mark.parametrize("cls", [Tag, ScaledParameter])
def test_a_program_may_look_at_values(cls: Any, call: Any) -> None:
    def program(x: Any) -> Any:
        return x * 2 if call(x) else x

    for x in of_class(cls, False, (1,)), cls(torch.zeros(1)).detach().as_subclass(cls):
        with torch._C.DisableTorchFunctionSubclass():
            assert not difference(program(x), run(program, x))


def test_they_say_their_class() -> None:
    found: list[str] = []
    x = of_class(Tag, False)
    expected = repr(x)
    run(lambda x: found.append(repr(x)) or x + 1, x)
    assert set(found) == {expected} and expected.startswith("Tag([[")


class Copied(Tag):
    """One that torch can copy."""

    def new_empty(self, *args: Any, **kwargs: Any) -> Any:
        return torch.empty(self.shape).as_subclass(Copied)


@pytest.mark.parametrize("cls", [Copied, ScaledParameter])
def test_deep_copies(cls: Any) -> None:
    def program(x: Any) -> Any:
        x.note = [1]
        y = copy.deepcopy(x)
        return y, type(y) is type(x), getattr(y, "note", None), getattr(y, "scale", None)

    expected, got = program(of_class(cls, False)), run(program, of_class(cls, False))
    assert expected[1:] == got[1:]
    with torch._C.DisableTorchFunctionSubclass():
        assert not difference(expected[0], got[0])


def test_nothing_is_replaced_after_a_trace() -> None:
    before = [vars(torch.Tensor).get(name) for name in ("as_subclass", "_make_subclass", "__new__")]
    run(lambda x: x.as_subclass(Tag), torch.ones(2))
    assert before == [vars(torch.Tensor).get(name) for name in ("as_subclass", "_make_subclass", "__new__")]
    assert type(torch.ones(2).as_subclass(Tag)) is Tag and type(Tag(torch.ones(2))) is Tag


def test_one_that_is_kept_is_found() -> None:
    place = out_of_sight(None)

    def program(x: Any) -> Any:
        place.kept = x * 2
        return x + 1

    with pytest.raises(SubclassAotError, match="still there when the trace is over: in .*, .kept"):
        run(program, of_class(Tag, False))
