"""Weights of `torchao` on two ranks. The programs are in `two_ranks.py` of the folder above."""

from __future__ import annotations

from pathlib import Path

from tests import on_ranks


def test_a_model_with_weights_of_torchao(tmp_path: Path) -> None:
    for found in on_ranks.run(Path(__file__).parents[1] / "two_ranks.py", tmp_path, 2, 300, "torchao"):
        assert len(found) == 3
        on_ranks.nothing_wrong(found)
