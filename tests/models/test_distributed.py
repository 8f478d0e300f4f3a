"""A model of `transformers` on two ranks. The programs are in `two_ranks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import on_ranks


@pytest.mark.long  # the weights themselves: tests/ranks/test_sharding.py
def test_a_model_with_int8_weights(tmp_path: Path) -> None:
    for found in on_ranks.run(Path(__file__).with_name("two_ranks.py"), tmp_path):
        assert len(found) == 4
        on_ranks.nothing_wrong(found)
