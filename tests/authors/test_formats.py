"""Eight formats written from the documentation alone keep all that a subclass owes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subclass_aot.testing import check_subclass
from tests.authors import formats
from tests.authors.formats import MAKES
from tests.authors.test_lines import lines_of

LONGEST = 170
"""Lines that these took when a stranger wrote them."""

OTHER_SIZES = {"new_zeros", "FSDP shards"}
NOT_OFFERED = {
    **dict.fromkeys(("Q8_0", "AWQ", "BSR", "Shards"), OTHER_SIZES),  # how long are fields of another size?
    "MXFP4": {"export"},  # the levels are a constant of the graph
}


def near(x: Any) -> Any:
    """What a dual number is close to: of a smooth function of it, the square of a small number is left out."""
    if x.requires_grad:
        raise NotImplementedError("fields have no gradients")
    return x.value + 1e-5 * x.slope


READINGS = {"Dual": [near]}


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", MAKES)
def test_nothing_is_wrong(name: str, is_quick: bool) -> None:
    report = check_subclass(lambda: MAKES[name](), readings=READINGS.get(name), quick=is_quick)
    report.raise_if_broken()
    not_offered = {finding.clause.name for finding in report.not_offered}
    if name != "Dual":  # which has no rule for most operators
        assert not_offered == NOT_OFFERED.get(name, set()) - ({"export"} if is_quick else set())


def test_they_are_short() -> None:
    assert lines_of(Path(formats.__file__)) - len(MAKES) <= LONGEST
