"""Stand-ins are records with annotations that can be asked."""

from __future__ import annotations

import pytest

from subclass_aot.saved import stand_ins
from subclass_aot.saved.codec import hints_of, names_in


@pytest.mark.parametrize("name", ["SavedWay", "SavedNew", "SavedOutcome", "SavedSignature", "SavedGraphs", "NodeAt"])
def test_each_field_has_an_annotation(name: str) -> None:
    cls = getattr(stand_ins, name)
    assert list(hints_of(cls)) == names_in(cls)
