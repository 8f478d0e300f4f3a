"""The tables of random programs."""

from __future__ import annotations

import torch

from tests.fuzz import caches


def test_tables() -> None:
    assert caches.table(4, torch.float32).tolist() == [0.25, 0.5, 0.75, 1]
    cos, sin = caches.rotations(3)["both"]
    torch.testing.assert_close(cos.square() + sin.square(), torch.ones(3, dtype=torch.float64))
    assert caches.visible(2, 2).tolist() == [[True, False], [True, True]]


def test_they_are_kept_until_they_are_cleared() -> None:
    before = caches.table(4, torch.float32)
    assert caches.table(4, torch.float32) is before
    caches.clear()
    assert caches.table(4, torch.float32) is not before
