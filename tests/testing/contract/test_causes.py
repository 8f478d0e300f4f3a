"""What is to blame: the law first, one method for all that follows from it, two for two mistakes."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.causes import causes_of
from subclass_aot.testing.contract.trial import Trial
from tests.testing.contract.classes import Scaled, aten, scaled

OPERATORS = (0, 2, 10, 23, 24, 27)


class LosesSign(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return LosesSign(plain.abs(), torch.ones_like(self.scale))


class OfOld(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return OfOld(plain + self.codes.amax(), torch.ones_like(self.scale))


class TwoMistakes(LosesSign):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return TwoMistakes(plain.abs(), torch.ones_like(self.scale))


@TwoMistakes.implements(aten.relu.default)
def too_much(x: Any) -> Any:
    return x.to_plain().relu() + 1


class Stale(Scaled):
    def to_plain(self) -> torch.Tensor:
        if "kept" not in vars(self):
            self.kept = super().to_plain()
        return self.kept


class Widened(Scaled):
    def to_plain(self) -> torch.Tensor:
        return super().to_plain().double()


def causes(cls: type) -> list[tuple[list[str], int]]:
    report = check_subclass(scaled(cls), only=OPERATORS, quick=True)
    return [([method.name for method in cause.methods], len(cause.findings)) for cause in report.causes]


def test_the_law_comes_first_and_what_follows_is_folded_under_it() -> None:
    ((methods, _),) = causes(LosesSign)  # what writes is right, since the class keeps no more of any value
    assert methods == ["from_plain", "to_plain"]
    ((methods, count),) = causes(OfOld)
    assert methods == ["from_plain"] and count > 5  # values of another show that it is no reading


def test_two_mistakes_are_two_causes() -> None:
    (first, _), (second, _) = causes(TwoMistakes)
    assert first == ["from_plain", "to_plain"] and second == ["aten.relu.default"]


def test_a_reading() -> None:
    assert causes(Stale)[0][0] == ["to_plain"]
    assert causes(Widened)[0][0] == ["outer", "to_plain"]


def test_what_is_right_has_no_cause() -> None:
    assert causes(Scaled) == []
    assert causes_of(Trial(scaled(Scaled)), []) == []
