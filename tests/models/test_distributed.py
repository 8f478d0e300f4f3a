"""A model of `transformers` on two ranks. The programs are in `two_ranks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ranks


@pytest.mark.long  # the weights themselves: tests/wrapper/distributed/test_sharding.py
def test_a_model_with_int8_weights(tmp_path: Path) -> None:
    for found in ranks.run(Path(__file__).with_name("two_ranks.py"), tmp_path):
        assert len(found) == 4
        ranks.nothing_wrong(found)
