"""What works with a class: what the declaration says agrees with what happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, Outer, QuantAwareWeight, TwoTensor, WrapperTensor
from subclass_aot.testing.inspection.offers import GROUPS, offers_of, table
from tests.kit.wrapper.classes import Many, everything, pair, scaled
from tests.ranks.sharded_classes import Coded, OfParts, Packed, Plain, Rounding, Rows

aten: Any = torch.ops.aten


class Frozen(WrapperTensor, views="broadcast"):
    """Can be read, and not written."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes.to(self.scale.dtype) * self.scale


class Bare(WrapperTensor):
    value: torch.Tensor


class Silent(WrapperTensor):
    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value


class Declines(Bare):
    """Has a rule that serves some calls."""


@Declines.implements(aten.mm.default)
def mm(a: Any, b: Any) -> Any:
    return a @ b.value if isinstance(b, Declines) else NotImplemented


@Declines.implements(aten.t.default)
def t(x: Declines) -> Declines:
    return Declines(x.value.t())


CODES = torch.ones(4, 6, dtype=torch.int8)
MAKE: dict[str, Callable[[], Any]] = {
    "Int8Weight": lambda: Int8Weight.from_float(torch.randn(4, 6)),
    "QuantAwareWeight": lambda: QuantAwareWeight(torch.randn(4, 6)),
    "TwoTensor": lambda: TwoTensor(torch.randn(4, 6), torch.randn(4, 6)),
    "TwoTensor of int8": lambda: TwoTensor(MAKE["Int8Weight"](), MAKE["Int8Weight"]()),
    "Frozen": lambda: Frozen(CODES, torch.ones(4, 1)),
    "Bare": lambda: Bare(torch.ones(4, 6)),
    "Silent": lambda: Silent(torch.ones(4, 6)),
    "Plain": lambda: Plain(torch.ones(4, 6)),
    "Rounding": lambda: Rounding(torch.ones(4, 6)),
    "Coded": lambda: Coded(CODES.to(torch.uint8), torch.linspace(-1, 1, 16)),
    "Rows": lambda: Rows(CODES, torch.ones(4, 1)),
    "OfParts": lambda: OfParts(MAKE["Int8Weight"](), [torch.ones(4, 1)]),
    "Packed": lambda: Packed(torch.ones(4, 3, dtype=torch.uint8), torch.ones(4, 1)),
    "Pair": lambda: pair(4, 6),
    "Many": lambda: Many([torch.randn(4, 6)] * 2),
    "Everything": everything,
    "Columns": lambda: Rows(CODES, torch.ones(1, 6)),
    "Scaled": lambda: scaled(4, 6, scale=(4, 1)),
}
BY_SIZE = {("Columns", "FSDP2", "trained"), ("Scaled", "FSDP2", "trained")}
"""What only the sizes of inner tensors show: a field that all rows share."""


@pytest.mark.parametrize("name", MAKE)
def test_what_is_told_is_what_happens(name: str) -> None:
    cls = type(MAKE[name]())
    told = {(row.group, row.name): row for row in offers_of(cls)}
    tried = {(row.group, row.name): row for row in offers_of(cls, MAKE[name])}
    assert len(told) == sum(map(len, GROUPS.values())) and told.keys() == tried.keys()
    assert {(name, *key) for key in tried if told[key].works != tried[key].works} == BY_SIZE & {
        (name, *key) for key in tried
    }
    assert any(row.works for row in tried.values())


def rows(name: str, tried: bool = True) -> dict[str, Any]:
    make = MAKE[name]
    return {f"{row.group}, {row.name}": row for row in offers_of(type(make()), make if tried else None)}


def test_it_names_what_serves() -> None:
    for tried in (False, True):
        found = {
            str(func): service.how for func, service in rows("Int8Weight", tried)["forward, linear"].services.items()
        }
        assert found["aten.t.default"] == "built in, by views=" and list(found) == ["aten.t.default", "aten.mm.default"]
        assert found["aten.mm.default"].startswith("rule, int8_weight.py:")


def test_it_names_what_is_wanted() -> None:
    found = rows("Frozen")
    assert found["forward, linear"].works and not found["writes, mul_"].works
    assert "has no from_plain to take the new value" in found["writes, mul_"].error
    service = found["optimizers, SGD fused"].services[aten._fused_sgd_.default]
    assert service.how == "it writes, and there is no from_plain" and "Frozen.implements(torch.ops.aten" in service.stub
    assert rows("Frozen", False)["writes, copy_"].error == "wants from_plain for dense values"
    assert rows("Plain", False)["FSDP2, frozen"].error == "wants views=, which says what a row is made of"


def test_a_rule_that_declined_is_named() -> None:
    make = lambda: Declines(torch.ones(4, 6))  # noqa: E731
    found = {f"{row.group}, {row.name}": row for row in offers_of(Declines, make)}
    assert found["forward, x @ w"].works
    assert f"The rule mm ({__file__}:" in found["forward, w @ x"].error and "declined" in found["forward, w @ x"].error


def test_what_is_no_matrix_of_floats_is_not_tried_as_one() -> None:
    groups = {row.group for row in offers_of(TwoTensor, lambda: TwoTensor(torch.ones(4), torch.ones(4)))}
    assert groups == GROUPS.keys() - {"forward", "backward"}
    groups = {row.group for row in offers_of(TwoTensor, lambda: TwoTensor(CODES, CODES))}
    assert not groups & {"backward", "optimizers", "clipping"}


def test_the_table() -> None:
    lines = table(Bare)
    assert [line for line in lines if line in GROUPS] == list(GROUPS)
    assert "  ! x @ w             mm (no rule)" in lines and "    deepcopy          generated from the fields" in lines
    assert "    @Bare.implements(torch.ops.aten.mm.default)" in lines and max(map(len, lines)) <= 118
    assert len(lines) < 100
    assert "Tried on a tensor." in table(Bare, MAKE["Bare"]) and not any("! " in line for line in table(Int8Weight))
    hooks = next(line for line in table(Rounding) if "hooks of its own" in line)
    assert "fsdp_pre_all_gather (sharded_classes.py:" in hooks


class OnEach(WrapperTensor, fallback="each"):
    value: torch.Tensor


@pytest.mark.parametrize(
    ("group", "program", "says"),
    [
        ("forward", "linear", "linear"),
        ("forward", "linear with bias", "linear with bias"),
        ("backward", "linear", "backward of linear"),
        *(("optimizers", name, name) for name in GROUPS["optimizers"]),
        *(("clipping", name, name) for name in GROUPS["clipping"]),
        ("saving", "state_dict", "state_dict"),
        ("FSDP2", "trained", "FSDP2"),
    ],
)
def test_the_table_of_operators_in_the_docs(group: str, program: str, says: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "authors.md").read_text()
    (line,) = re.findall(rf"^\| {says} \|(.*)\|$", text, re.MULTILINE)
    always, wrapped = (set(re.findall("`(.*?)`", column)) for column in line.split("|"))
    needs = {
        cls: {
            str(func).split(".")[1]
            for row in offers_of(cls)
            for func in row.services
            if (row.group, row.name) == (group, program)
        }
        for cls in (Int8Weight, OnEach)
    }
    if group == "clipping":  # where gradients are dense, no gradient is of the class
        needs = {cls: funcs - {"detach", "clone"} for cls, funcs in needs.items()}
    assert (always, always | wrapped) == (needs[Int8Weight], needs[OnEach] | always)
