"""Strides of packed tensors."""

from __future__ import annotations

import itertools

import pytest
import torch

from subclass_aot.meta import strides


@pytest.mark.parametrize("size", [(2, 3, 4), (2, 1, 4), (1, 1), (3,), ()])
def test_packed(size: tuple[int, ...]) -> None:
    assert tuple(strides.packed(size)) == torch.empty(size).stride()


def test_of_views() -> None:
    """As the kernel has them, in dims of one place, too."""
    sizes = [(1, 2, 3, 6), (2, 1, 6), (1, 1), (3, 1, 2), (2, 3), (6,), (1, 6, 1)]
    for size in sizes:
        for order in itertools.permutations(range(len(size))):
            x = torch.rand([size[d] for d in order]).permute([order.index(d) for d in range(len(size))])
            for shape in (*sizes, (1, 2, 18), (2, 18), (4, 9), (36, 1), (1, 1, 1)):
                try:
                    expected = x.view(shape).stride()
                except RuntimeError:
                    assert strides.viewed(x.shape, x.stride(), shape) is None
                else:
                    assert strides.viewed(x.shape, x.stride(), shape) == expected, (x.stride(), shape)
