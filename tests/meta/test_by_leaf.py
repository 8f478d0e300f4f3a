"""Notes on leaves."""

from __future__ import annotations

import gc

import torch

from subclass_aot import MetaTensor
from subclass_aot.meta.by_leaf import ByLeaf


def test_a_note_lives_as_long_as_the_leaf() -> None:
    notes = ByLeaf()
    first, second = (MetaTensor(torch.empty(2, device="meta")) for _ in range(2))
    notes.note(first, "first")
    notes.note(second, "second")
    assert (notes.of(first), notes.of(second)) == ("first", "second")
    notes.forget(lambda leaf: leaf is second)
    assert (notes.of(first), notes.of(second)) == ("first", None)
    del first
    gc.collect()
    assert not notes
