"""What each rank of the demo is given."""

from __future__ import annotations

import torch

from benchmarks.demo import ranks


def test_batches_are_the_same_in_each_process_and_new_at_each_step() -> None:
    text, following = ranks.batch(3, 4)
    assert text.shape == following.shape == (4, 32) and torch.equal(text[:, 1:], following[:, :-1])
    assert torch.equal(text, ranks.batch(3, 4)[0]) and not torch.equal(text, ranks.batch(4, 4)[0])
    assert text.min() >= 0 and text.max() < 128


def test_the_model_is_the_same_in_each_process() -> None:
    for mine, theirs in zip(ranks.made().parameters(), ranks.made().parameters(), strict=True):
        assert type(mine) is type(theirs) and torch.equal(mine.detach(), theirs.detach())
