"""The kit finds what is broken on purpose in six right classes, and names it: a few here, all with `--all`."""

from __future__ import annotations

from typing import Any

import pytest

from subclass_aot.testing import check_subclass
from tests.testing.contract import mutated_classes
from tests.testing.contract.mutants import MAKERS, mutants, outcome, reason, run

FEW = {
    "grouped.from_plain: zero = (high + low) / 2 -> zero = high + low",
    "product.product_mm: return a.tall @ (a.wide @ right) * a.factor -> return a.tall @ (a.wide @ right)",
    "masked.to_plain: return torch.where(self.counts, self.values, torch.zeros_like(self.values)) -> "
    "return torch.where(self.values, self.counts, torch.zeros_like(self.values))",
    "sum.__tensor_unflatten__: return cls(inner['one'], inner['two'], context[0]) -> "
    "return cls(inner['two'], inner['one'], context[0])",
    "coded.coded_mul: return Coded(a.codes.clone(), a.scale * b) -> return Coded(a.codes.clone(), a.scale / b)",
}


@pytest.mark.long
@pytest.mark.parametrize("maker", MAKERS)
def test_the_classes_are_right(maker: str) -> None:
    report = check_subclass(getattr(mutated_classes, MAKERS[maker]))
    assert not report.broken, report


def test_there_are_enough_and_no_two_are_the_same() -> None:
    found = mutants()
    assert len(found) >= 300 and {mutant.maker for mutant in found} == set(MAKERS)
    assert len({mutant.source for mutant in found}) == len(found)
    assert {str(mutant) for mutant in found} >= FEW


@pytest.mark.parametrize("name", sorted(FEW), ids=lambda name: name.partition(".")[0])
def test_a_mistake_is_found_and_named(name: str) -> None:
    (mutant,) = [each for each in mutants() if str(each) == name]
    came: Any = outcome(mutant, 0)
    assert (came.verdict, came.is_named) == ("found", True), came.first


@pytest.mark.long
def test_all() -> None:
    outcomes = [each for each in run() if not (each.verdict == "missed" and reason(each.mutant))]
    missed = [str(each.mutant) for each in outcomes if each.verdict == "missed"]
    assert len(outcomes) >= 300 and len(missed) <= len(outcomes) / 20, missed
    found = [each for each in outcomes if each.verdict == "found"]
    assert sum(each.is_named for each in found) >= 0.8 * len(found)
