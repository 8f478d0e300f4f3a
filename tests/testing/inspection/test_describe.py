"""A class is described by its fields, its layout, its rules and the source that was generated."""

from __future__ import annotations

import re
import textwrap

import pytest
import torch

from subclass_aot import TwoTensor, WrapperTensor
from subclass_aot.errors import UnknownClassError
from subclass_aot.testing.inspection import describe, find_class
from tests.kit.wrapper.with_sets import Masked

aten = torch.ops.aten


class Outside:
    """Holds a class."""

    class Kept(WrapperTensor, fallback="each"):
        """Is described."""

        parts: list[torch.Tensor]
        extra: torch.Tensor | None = None
        scale: float = 2.0


@Outside.Kept.implements(aten.relu.default)
def relu(self: Outside.Kept) -> Outside.Kept:
    return Outside.Kept([part.relu() for part in self.parts], self.extra, self.scale)


def sections(text: str) -> dict[str, list[str]]:
    """The lines below each title."""
    lines = text.splitlines()
    heads = [i - 1 for i, line in enumerate(lines) if line and set(line) == {"="}]
    return {lines[i]: lines[i + 2 : j] for i, j in zip(heads, [*heads[1:], len(lines)], strict=True)}


def test_the_sections_of_a_class() -> None:
    found = sections(describe(Outside.Kept))
    assert list(found)[1:] == ["Fields", "Flat layout", "Operators", "What works", "Generated source"]
    assert found[f"{__name__}.Outside.Kept"] == ["Is described.", ""]
    assert [line.split() for line in found["Fields"] if line] == [
        ["parts", "sequence", "list[torch.Tensor]"],
        ["extra", "optional", "torch.Tensor", "|", "None", "=", "None"],
        ["scale", "context", "float", "=", "2.0"],
    ]
    assert found["Flat layout"][:2] == ["parts_0, parts_1, ...", "extra, unless absent"]
    assert found["Operators"][0].startswith("aten.relu.default  Kept, test_describe.py:")
    assert found["Operators"][1] == "An operator without a rule runs on every inner tensor (fallback='each')."


def test_rules_for_sets_are_listed() -> None:
    found = sections(describe(Masked))["Operators"]
    assert [line.split()[:2] for line in found[:3]] == [
        ["ops.factories", "Masked,"],
        ["ops.pointwise", "Masked,"],
        ["ops.reductions", "Masked,"],
    ]
    assert re.search(r" with_sets\.py:\d+$", found[0])


def test_the_source_is_what_runs() -> None:
    source = "\n".join(sections(describe(TwoTensor))["Generated source"])
    assert textwrap.dedent(TwoTensor.__tensor_flatten__.__source__).strip() in source  # type: ignore[attr-defined]
    for name in ("__new__", "__tensor_flatten__", "__tensor_unflatten__"):
        assert source.count(f"def {name}(") == 1


def test_a_nested_class_is_found() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "inspected", __import__("types").SimpleNamespace(Outside=Outside))
        assert find_class("inspected:Outside.Kept") == (Outside.Kept, None)
        with pytest.raises(UnknownClassError, match="is no class that derives from WrapperTensor"):
            find_class("inspected:Outside")
        with pytest.raises(UnknownClassError, match="inspected has no Outside.Gone"):
            find_class("inspected:Outside.Gone")


def test_of_a_tensor_it_is_tried_what_works() -> None:
    def make() -> TwoTensor:
        return TwoTensor(torch.ones(4, 6), torch.ones(4, 6))

    with pytest.MonkeyPatch.context() as patch:
        functions = {"make": make, "wants": lambda size: make(), "other": lambda: torch.ones(3)}
        patch.setitem(__import__("sys").modules, "inspected", __import__("types").SimpleNamespace(**functions))
        cls, found = find_class("inspected:make")
        assert cls is TwoTensor and found is make
        with pytest.raises(UnknownClassError, match="Called without arguments it raises TypeError"):
            find_class("inspected:wants")
        with pytest.raises(UnknownClassError, match="no function that gives a tensor of one"):
            find_class("inspected:other")
    works = sections(describe(TwoTensor, make))["What works"]
    assert "Tried on a tensor." in works and "    x @ w             mm (each inner tensor)" in works
