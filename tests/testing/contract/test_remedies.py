"""Each clause has a line to write, by hand, and in a declared class where that is less."""

from __future__ import annotations

import re
from typing import Any

import pytest

from subclass_aot import TwoTensor
from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.check import CLAUSES
from subclass_aot.testing.contract.remedies import remedy
from tests.testing.contract.classes import Held, held, scaled
from tests.testing.contract.wrong_by_hand import DenseViews
from tests.testing.contract.wrong_declared import SharesScale


@pytest.mark.parametrize("cls", [Held, TwoTensor])
def test_every_clause_has_one(cls: type) -> None:
    for clause in CLAUSES:
        text = remedy(clause, cls)
        assert len(text) > 20 and not re.search(r"\{(cls|name)\}", text), clause.name


@pytest.mark.parametrize(
    ("make", "number", "line"),
    [
        (
            held(DenseViews),
            22,
            "write: DenseViews(func(x.inner, *args), ...), of views of inner tensors, through",
        ),
        (scaled(SharesScale), 24, "write: @SharesScale.implements(torch.ops.aten.clone.default): return SharesScale("),
    ],
)
def test_the_report_has_it_below_what_differed(make: Any, number: int, line: str) -> None:
    verdict, differs, write = str(check_subclass(make, only=[number])).splitlines()[2:5]
    assert verdict.startswith(f"  broken: clause {number} (S), ") and differs.strip() and write.strip().startswith(line)


def test_names_before_numbers() -> None:
    clauses = {clause.name: clause for clause in CLAUSES}
    assert "_to_copy" in remedy(clauses["Module.to(dtype)"], Held)
    assert "__repr__" in remedy(clauses["repr"], TwoTensor)
    assert "zeros_like" in remedy(clauses["zeros_like"], TwoTensor)


def test_the_method_that_ends_the_process() -> None:
    (clause,) = [clause for clause in CLAUSES if clause.name == "share_memory_ in a child process"]
    assert remedy(clause, Held) == "def share_memory_(self, ...): raise NotImplementedError(...)"
