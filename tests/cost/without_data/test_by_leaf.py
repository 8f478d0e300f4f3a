"""Notes on leaves."""

from __future__ import annotations

import gc

import torch

from subclass_aot import MetaTensor
from subclass_aot.cost.without_data.by_leaf import ByLeaf


def test_a_note_lives_as_long_as_the_leaf() -> None:
    notes = ByLeaf()
    first, second = (MetaTensor(torch.empty(2, device="meta")) for _ in range(2))
    notes.note(first, "first")
    notes.note(second, "second")
    assert (notes.of(first), notes.of(second)) == ("first", "second")
    notes.forget([second])
    assert (notes.of(first), notes.of(second)) == ("first", None)
    del first
    gc.collect()
    assert not notes


def test_what_shares_memory_is_forgotten_together() -> None:
    notes = ByLeaf()
    first, other = (MetaTensor(torch.empty(2, device="meta")) for _ in range(2))
    view, part = first.view(2, 1), first[:1]
    for leaf in (first, view, other):
        notes.note(leaf, 1)
    first.set_(other)  # whose memory it has from now on
    del view
    notes.forget([first])
    assert len(notes) == 0 or notes.of(first) is None
    notes.note(part, 2)
    notes.forget([other])
    assert notes.of(part) == 2 and notes.of(other) is None
