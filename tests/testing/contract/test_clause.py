"""Clauses are kept in the order in which they are added, each with its check."""

from __future__ import annotations

import torch

from subclass_aot.testing.contract.clause import Clause, Clauses
from subclass_aot.testing.contract.trial import Trial
from tests.testing.contract.classes import two_tensor


def test_clauses_are_kept_in_order() -> None:
    clauses, tried = Clauses(), []

    @clauses.add(2, "S", "second", "the second")
    def second(trial: Trial) -> None:
        tried.append(type(trial.make()))

    @clauses.add(1, "C", "first", "the first")
    def first(trial: Trial) -> None:
        tried.append(torch.Tensor)

    assert clauses == [Clause(2, "S", "second", "the second", second), Clause(1, "C", "first", "the first", first)]
    for clause in clauses:
        clause.check(Trial(two_tensor))
    assert [cls.__name__ for cls in tried] == ["TwoTensor", "Tensor"]
