"""Clauses 30 to 35, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.testing.contract import check_subclass
from subclass_aot.testing.contract.gradients import CLAUSES, trained
from tests.testing.contract.classes import OURS, broken, held, two_tensor
from tests.testing.contract.wrong_by_hand import CutOff, NoGradient
from tests.testing.contract.wrong_declared import Growing, NoOwnContext

NUMBERS = (30, 31, 35)
EAGER = {clause.name for clause in CLAUSES}


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], NUMBERS) == {}


def test_a_reading_that_cuts_the_gradient() -> None:
    report = check_subclass(held(CutOff), only=(32,))
    found = {finding.clause.name: finding.why for finding in report.broken}
    assert set(found) & EAGER == {"reading"}
    assert "what reading 0 gives does not require grad" in found["reading"]


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (lambda: NoOwnContext(torch.ones(2, 3), torch.ones(2, 3)), "tangent of the own context", "it gives None"),
        (lambda: Growing(torch.ones(2, 3), torch.ones(2, 3)), "canonical tangent", "means a tensor of [4, 3]"),
        (held(NoGradient), "requires_grad", "does not require grad"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    assert says in broken(make, NUMBERS)[name]


def test_trained() -> None:
    loss, grad = trained(lambda x: (x * x).sum(), two_tensor())
    assert type(loss) is type(grad) is TwoTensor and grad.shape == (4, 6)
