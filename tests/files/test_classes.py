"""Which classes a file may name."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import TwoTensor, WrapperTensor
from subclass_aot.base.named import full_name
from subclass_aot.base.refused import Refused
from subclass_aot.files.classes import KnownClasses
from tests.files.classes import Everything, Mode, Range, Recipe


def test_classes_that_are_defined_are_known() -> None:
    assert KnownClasses().wrapper(full_name(TwoTensor)) is TwoTensor


@pytest.mark.parametrize(
    "name",
    [
        full_name(ForeignTwoTensor),
        "torch:Tensor",
        "nowhere:Class",
        "os:system",
        "subclass_aot.kit.wrapper.view_of:ViewOf",
    ],
)
def test_others_are_not(name: str) -> None:
    with pytest.raises(Refused, match=rf"is of the class {name}, which nobody(.|\n)*classes=\["):
        KnownClasses().wrapper(name)


def test_nothing_is_imported() -> None:
    sys.modules.pop("this", None)
    with pytest.raises(Refused):
        KnownClasses().wrapper("this:Zen")
    assert "this" not in sys.modules


def test_classes_that_are_handed_in() -> None:
    name = full_name(ForeignTwoTensor)
    assert KnownClasses([ForeignTwoTensor]).wrapper(name) is ForeignTwoTensor
    assert KnownClasses({"old:Pair": ForeignTwoTensor}).wrapper("old:Pair") is ForeignTwoTensor
    assert KnownClasses([ForeignTwoTensor]).wrapper("__main__:TwoTensor") is ForeignTwoTensor  # it has moved
    with pytest.raises(Refused, match="there are 2 of that name. Say which one"):
        KnownClasses([ForeignTwoTensor, TwoTensor]).wrapper("__main__:TwoTensor")


def test_a_class_statement_that_ran_again() -> None:
    def define(module: str) -> Any:
        return type("Again", (WrapperTensor,), {"__annotations__": {"x": torch.Tensor}, "__module__": module})

    first, second = define(__name__), define(__name__)
    name = full_name(first)
    with pytest.raises(Refused, match="there are 2 of that name"):
        KnownClasses().wrapper(name)
    assert KnownClasses([first]).wrapper(name) is first
    globals()["Again"] = second
    try:
        assert KnownClasses().wrapper(name) is second
    finally:
        del globals()["Again"], first, second
        gc.collect()


def test_a_class_with_two_bases_is_one_class() -> None:
    class Left(WrapperTensor):
        codes: torch.Tensor

    class Right(WrapperTensor):
        scale: torch.Tensor

    class Both(Left, Right):
        pass

    assert KnownClasses().wrapper(full_name(Both)) is Both


class Others(WrapperTensor):
    codes: torch.Tensor
    anything: Any = None


@dataclass(frozen=True)
class Unreadable:
    mode: NotThere  # type: ignore[name-defined]  # noqa: F821


class HasDefault(WrapperTensor):
    codes: torch.Tensor
    held: Any = Unreadable(Mode.ROWS)


def test_what_the_annotations_of_a_class_mention_may_stand_in_its_context() -> None:
    known = KnownClasses()
    for cls in (Recipe, Mode, Range):
        assert known.of_context(full_name(cls), Everything) is cls
        with pytest.raises(Refused, match="is of the class"):
            known.of_context(full_name(cls), Others)
        assert KnownClasses([cls]).of_context(full_name(cls), Others) is cls
    assert known.of_context(full_name(Unreadable), HasDefault) is Unreadable
    with pytest.raises(Refused):
        known.of_context(full_name(Mode), HasDefault)
    with pytest.raises(Refused):
        known.of_context(full_name(Mode), ForeignTwoTensor)
