"""Programs that build, freeze, copy and step, and calls between that do not, are what they are in eager mode."""

from __future__ import annotations

import pytest

from tests.fuzz.lasting import check_lasting, seeded


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int) -> None:
    check_lasting(seeded(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 100))
def test_more_of_them(seed: int) -> None:
    check_lasting(seeded(seed))
