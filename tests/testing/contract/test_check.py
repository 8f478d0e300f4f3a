"""`check_subclass` as a whole: which clauses it tries, what it expects, cases of pytest."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from subclass_aot.errors import ContractError
from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.check import CLAUSES
from tests.testing.contract.classes import PRODUCTS, held, quant_aware, two_tensor
from tests.testing.contract.wrong_by_hand import LosesGradient

FEW = (9, 12, 25)


def test_clauses_have_names_of_their_own() -> None:
    keys = [(clause.number, clause.name) for clause in CLAUSES]
    assert len(set(keys)) == len(keys) > 140
    assert keys == sorted(keys, key=lambda key: key[0])
    assert {number for number, _ in keys} == set(range(46))


def test_only_some() -> None:
    report = check_subclass(two_tensor, only=FEW)
    assert {finding.clause.number for finding in report.findings} == set(FEW)
    assert report.broken == [] and report.cls.__name__ == "TwoTensor"


def test_what_is_expected() -> None:
    expected = {key: reason for key, reason in PRODUCTS.items() if key[0] in FEW}
    report = check_subclass(quant_aware, only=FEW, expected=expected)
    assert report.broken == []
    found = [finding for finding in report.findings if finding.verdict == "expected"]
    assert {(f.clause.number, f.clause.name) for f in found} == set(expected)
    assert all(f.why.startswith("products see the rounded weight (") for f in found)


def test_what_is_expected_and_kept() -> None:
    report = check_subclass(two_tensor, only=(12,), expected={(12, "no copies"): "it copies"})
    (finding,) = report.broken
    assert finding.verdict == "kept, not expected"
    assert finding.why == "take it out of expected=, which says: it copies"


def test_names_that_are_no_clauses() -> None:
    with pytest.raises(ValueError, match=r"there is no clause \(22, 'x.T\(\)'\); the nearest is \(22, 'x.t\(\)'\)"):
        check_subclass(two_tensor, expected={(22, "x.T()"): "it cannot"})
    with pytest.raises(ValueError, match="there is no clause 99"):
        check_subclass(two_tensor, only=(99,))


def test_random_numbers_stay_as_they_were() -> None:
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    check_subclass(two_tensor, only=(26,))
    assert torch.equal(torch.rand(2), want)


@check_subclass.cases(quant_aware, only=(22, 27), expected=PRODUCTS)
def test_cases(case: Callable[[], None]) -> None:
    case()


def test_cases_that_fail() -> None:
    @check_subclass.cases(held(LosesGradient), only=(4,))
    def marked(case: Callable[[], None]) -> None:
        pass

    (parametrize,) = cast(Any, marked).pytestmark
    names, (param,) = parametrize.args
    assert names == "case" and param.id == "4 inner requires grad"
    with pytest.raises(ContractError, match="clause 4 .S., inner requires grad"):
        param.values[0]()


def test_the_page_counts_the_clauses() -> None:
    page = (Path(__file__).parents[3] / "docs" / "contract.md").read_text()
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert numbers == set(range(46))
    tried = {int(n) for n in re.findall(r"^\| (\d+) \|.*\| yes \|$", page, re.MULTILINE)}
    assert tried == {clause.number for clause in CLAUSES}
