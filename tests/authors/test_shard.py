"""Classes on two ranks; the cases are in `two_ranks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ranks

pytestmark = pytest.mark.long


def test_two_ranks(tmp_path: Path) -> None:
    for found in ranks.run(Path(__file__).with_name("two_ranks.py"), tmp_path):
        ranks.nothing_wrong(found)
        assert len(found) == 7
