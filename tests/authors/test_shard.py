"""Classes on two ranks; the cases are in `two_ranks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import on_ranks

pytestmark = pytest.mark.long


def test_two_ranks(tmp_path: Path) -> None:
    for found in on_ranks.run(Path(__file__).with_name("two_ranks.py"), tmp_path):
        on_ranks.nothing_wrong(found)
        assert len(found) == 7
