"""Records that stand for signatures."""

from __future__ import annotations

import dataclasses

from subclass_aot.outcome import Outcome
from subclass_aot.saved.stand_ins import SavedOutcome, SavedSignature
from subclass_aot.signature import Assumptions, JointSignature


def _names(cls: type) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]


def test_nothing_of_a_signature_is_forgotten() -> None:
    """The index map follows from the inputs; symbols and demands on data are written elsewhere, or refused."""
    of_signature = _names(JointSignature) - {"index_map", "assumptions"}
    of_assumptions = _names(Assumptions) - {"symbols", "runtime_asserts"}
    assert _names(SavedSignature) == of_signature | of_assumptions


def test_nothing_of_an_outcome_is_forgotten() -> None:
    assert _names(SavedOutcome) == _names(Outcome)
