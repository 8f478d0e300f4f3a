"""Each clause has a line to write, by hand, and in a declared class where that is less."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, WrapperTensor, structure
from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.blame import Method
from subclass_aot.testing.contract.check import CLAUSES
from subclass_aot.testing.contract.remedies import remedy, values_read
from tests.testing.contract.classes import Held, Scaled, held, scaled
from tests.testing.contract.wrong_by_hand import DenseViews
from tests.testing.contract.wrong_declared import SharesScale


@pytest.mark.parametrize("cls", [Held, TwoTensor])
def test_every_clause_has_one(cls: type) -> None:
    for clause in CLAUSES:
        text = remedy(clause, cls)
        assert len(text) > 20 and not re.search(r"\{(cls|name)\}", text), clause.name


@pytest.mark.parametrize(
    ("make", "number", "first", "line"),
    [
        (
            held(DenseViews),
            22,
            r"DenseViews: `__torch_dispatch__` \(wrong_by_hand.py:\d+\): the view is a Tensor: it aliases nothing",
            "in `__torch_dispatch__` (wrong_by_hand.py:",
        ),
        (
            scaled(SharesScale),
            24,
            r"SharesScale: the rule for aten.clone.default \(wrong_declared.py:\d+\): \['scale'\] of the clone is",
            "in the rule for aten.clone.default (wrong_declared.py:",
        ),
    ],
)
def test_the_report_begins_with_the_cause_and_what_to_write(make: Any, number: int, first: str, line: str) -> None:
    cause, write, verdict = str(check_subclass(make, only=[number])).splitlines()[:3]
    assert re.match(first, cause) and write.startswith(f"      write: {line}")
    assert verdict.startswith(f"  broken: clause {number} (S), ")


def test_what_served_the_operator_is_what_to_mend() -> None:
    (clause,) = [clause for clause in CLAUSES if clause.name == "x * 2 + 1"]
    assert "to_plain" in remedy(clause, TwoTensor) and "take the rule out" in remedy(clause, TwoTensor)
    rule = Method("aten.mul.Tensor", "rule", "/a/b.py", 7)
    assert remedy(clause, TwoTensor, [rule]).startswith("in the rule for aten.mul.Tensor (b.py:7), what the operator")
    assert "take the rule out" not in remedy(clause, Held, [rule])  # a class by hand has nothing else
    reading = Method("to_plain", "method", "/a/b.py", 7)
    assert remedy(clause, Held, [reading]).startswith("in `to_plain` (b.py:7), what the tensor means")
    assert remedy(clause, TwoTensor, [Method("from_plain", "method", "b.py", 7)]).startswith("in `from_plain` (b.py:7)")


def test_names_before_numbers() -> None:
    clauses = {clause.name: clause for clause in CLAUSES}
    assert "_to_copy" in remedy(clauses["Module.to(dtype)"], Held)
    assert "__repr__" in remedy(clauses["repr"], TwoTensor)
    assert "zeros_like" in remedy(clauses["zeros_like"], TwoTensor)


def test_the_method_that_ends_the_process() -> None:
    (clause,) = [clause for clause in CLAUSES if clause.name == "share_memory_ in a child process"]
    assert remedy(clause, Held) == "def share_memory_(self, ...): raise NotImplementedError(...)"


class Rows(WrapperTensor):
    """Rows, and the order they come in, which is not said to be structure."""

    rows: torch.Tensor
    order: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.rows[self.order]

    def from_plain(self, plain: torch.Tensor) -> Any:
        return Rows(plain[self.order.argsort()], self.order.clone())


class Aligned(Rows):
    rows: torch.Tensor
    order: torch.Tensor = structure()


class OfSizes(Rows):
    def from_plain(self, plain: torch.Tensor) -> Any:
        like = torch.zeros_like(self.rows, dtype=self.order.dtype)
        return OfSizes(plain.reshape(self.rows.shape), like[..., 0])


class NeedsRows(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return NeedsRows(plain / (plain.abs().amax() + 1), torch.full_like(self.scale, plain.abs().amax() + 1))


FROM_PLAIN = Method("from_plain", "method", "b.py", 7)


@pytest.mark.parametrize(("cls", "read"), [(Rows, ["order"]), (Aligned, []), (OfSizes, []), (Scaled, []), (Held, [])])
def test_fields_whose_values_are_read_by_from_plain(cls: type, read: list[str]) -> None:
    assert values_read(cls) == read
    clause = next(clause for clause in CLAUSES if clause.name == "own values")
    advises = "mark it order: torch.Tensor = sa.structure()" in remedy(clause, cls, [FROM_PLAIN])
    assert advises == bool(read)


def test_both_that_do_not_agree_are_named() -> None:
    clause = next(clause for clause in CLAUSES if clause.name == "own values")
    text = remedy(clause, Scaled, [FROM_PLAIN, Method("to_plain", "method", "b.py", 3)])
    assert text.startswith("in `from_plain` (b.py:7) or in `to_plain` (b.py:3): ")


def test_fields_have_the_names_of_the_class() -> None:
    outer = next(clause for clause in CLAUSES if clause.number == 2)
    assert remedy(outer, Aligned) == "return sa.Outer.like(self.rows), in outer_metadata"
    assert remedy(outer, TwoTensor) == "return sa.Outer.like(self.a, dtype=self.b.dtype), in outer_metadata"
    clone = next(clause for clause in CLAUSES if clause.name == "clone")
    assert "return Aligned(x.rows.clone(), x.order.clone())" in remedy(clone, Aligned)


def test_the_form_that_from_plain_cannot_take_is_named() -> None:
    report = str(check_subclass(scaled(NeedsRows), only=[0]))
    first = report.splitlines()[0]
    assert re.search(
        r"raises RuntimeError: .*, of values like x\[:0\], which is \[0, 6\] and has no elements$", first
    ), first


def test_memory_that_a_rule_gives_on() -> None:
    clause = next(clause for clause in CLAUSES if clause.name == "drawn calls")
    rule = Method("aten.neg.default", "rule", "b.py", 7)
    assert "new inner tensors" in remedy(
        clause, Scaled, [rule], "x after aten.neg.default(x).mul_(3), which has the memory of"
    )
