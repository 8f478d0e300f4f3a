"""Collectives on wrappers, in two processes. The programs are in `two_ranks.py`."""

from __future__ import annotations

from pathlib import Path

from tests import on_ranks
from tests.torches import TORCH

REFUSALS = {
    "dense and wrapper": "it has dense tensors, too",
    "dense, without meaning": "it has dense tensors, too",
    "scattered into a wrapper": "it has dense tensors, too",
    "gathered into wrappers": "it has dense tensors, too",
    "gathered into dense": "it has dense tensors, too",
    "reduced into a wrapper": "it has dense tensors, too",
    "other inner tensors": "do not have the same inner tensors and context",
    "without meaning": "without to_plain and from_plain nobody knows",
    "other rows": r"offsets[5] does not have the rows of a tensor of [8]",
}


INTO_PARTS = 4 if TORCH == (2, 11) else 5


def test_two_ranks(tmp_path: Path) -> None:
    for found in on_ranks.run(Path(__file__).with_name("two_ranks.py"), tmp_path):
        for name, text in REFUSALS.items():
            assert text in found.pop(name)
        on_ranks.nothing_wrong(found)
        assert len(found) == 18 * 4 + 6 * 4 + 6 * 2 + 4 * 2 + INTO_PARTS * 4 * 2 + 1
