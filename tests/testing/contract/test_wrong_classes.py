"""The kit finds each class that is wrong on purpose, and names its mistake: the table is the docstrings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.check import CLAUSES
from tests.testing.contract import wrong_apart, wrong_by_hand, wrong_declared
from tests.testing.contract.classes import Held, Scaled, Signed, held, scaled, signed

COMPILED = {32, 33, 34, 36, 42}
"""Numbers that take their time: tried where a docstring names one."""


def pair(cls: type) -> Callable[[], Any]:
    return lambda: cls(torch.randn(4, 6), torch.randn(4, 6) + 3)


MAKERS: dict[type, Callable[..., Any]] = {
    wrong_apart.ForgetsNote: held(wrong_apart.ForgetsNote, lambda: "a"),
    wrong_by_hand.HiddenFactor: lambda: wrong_by_hand.hidden(),
    wrong_by_hand.Marked: lambda: wrong_by_hand.marked(),
    wrong_declared.CoarseState: lambda: wrong_declared.CoarseState.from_float(torch.randn(4, 6)),
    wrong_declared.ForgetsNote: lambda: wrong_declared.ForgetsNote(torch.randn(4, 6), torch.rand(4, 1), "a"),
    wrong_declared.ForgottenTranspose: scaled(wrong_declared.ForgottenTranspose, 4, 4),
    wrong_declared.ShortGroup: lambda: wrong_declared.ShortGroup(torch.randn(4, 12), torch.rand(4, 2) + 0.5),
    wrong_declared.SizeOfValues: lambda: wrong_declared.SizeOfValues(torch.randn(12), torch.tensor([3] * 4)),
}


def make_of(cls: type) -> Callable[..., Any]:
    """A class that is no tensor is a context; it is tried in a class that is right."""
    if not issubclass(cls, torch.Tensor):
        return held(Held, cls)
    of_base = {Held: held, Scaled: scaled, Signed: signed}
    return MAKERS.get(cls) or next((make for base, make in of_base.items() if issubclass(cls, base)), pair)(cls)


def classes_of(module: ModuleType) -> Iterator[type]:
    return (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__)


WRONG = [*classes_of(wrong_apart), *classes_of(wrong_by_hand), *classes_of(wrong_declared)]


def stated(cls: type) -> tuple[str, set[tuple[int, str]], set[int]]:
    """The mistake, the clauses that must name it, and the numbers where it may be seen, too."""
    doc = cls.__doc__ or ""
    mistake, _, clauses = doc.partition("\n\n    Clauses:\n")
    named, _, also = clauses.partition("    Also: ")
    keys = {(int(number), name) for number, name in re.findall(r"^        (\d+) (.+)$", named, re.MULTILINE)}
    return mistake, keys, {int(number) for number in re.findall(r"\d+", also)}


def test_there_are_enough_and_each_states_one_mistake_and_clauses_that_exist() -> None:
    known = {(clause.number, clause.name) for clause in CLAUSES}
    assert len(WRONG) >= 50
    for cls in WRONG:
        mistake, keys, _ = stated(cls)
        assert re.fullmatch(r"[^\n]+\.", mistake) and keys and keys <= known, (cls.__name__, keys - known)


@pytest.mark.parametrize(
    "make",
    [
        signed(Signed),
        *(
            pytest.param(make, marks=pytest.mark.long)
            for make in (held(Held), held(Held, lambda: "a"), scaled(Scaled), scaled(Scaled, 4, 4))
        ),
    ],
)
def test_their_bases_are_right(make: Callable[[], Any]) -> None:
    assert [str(finding) for finding in check_subclass(make).broken] == []


EACH = [pytest.param(cls, marks=[pytest.mark.long] if number % 16 else []) for number, cls in enumerate(WRONG)]


@pytest.mark.parametrize("cls", EACH, ids=lambda cls: f"{cls.__module__.rpartition('_')[2]}-{cls.__name__}")
def test_the_mistake_is_named_and_nothing_else(cls: type) -> None:
    _, must, also = stated(cls)
    numbers = {number for number, _ in must} | also
    tried = {clause.number for clause in CLAUSES} - (COMPILED - {number for number, _ in must})
    report = check_subclass(make_of(cls), only=tried)
    found = {(finding.clause.number, finding.clause.name): finding for finding in report.broken}
    assert must <= set(found), f"not found: {must - set(found)}"
    assert not {key: str(finding) for key, finding in found.items() if key[0] not in numbers}
    assert all(finding.why for finding in found.values())
