"""What inductor wants to be told of a graph."""

from __future__ import annotations

import torch

from subclass_aot.backends.for_inductor import sizes_to_pass
from subclass_aot.meta import Spec, new_leaf
from subclass_aot.meta.symbols import Symbols


def test_sizes_that_inductor_is_given() -> None:
    symbols = Symbols()
    n, m = symbols.size(4, "x.size(0)"), symbols.size(6, "x.size(1)")
    x, doubled = new_leaf(Spec.make((n, m), (m, 1))), new_leaf(Spec.make((n * 2,), (1,)))
    assert sizes_to_pass([doubled, x, 3]) == ([(1, 0, 1), (1, 1, 1)], [n, m], True)
    assert sizes_to_pass([x, m]) == ([(0, 0, 1)], [n], True)
    assert sizes_to_pass([n, doubled]) == ([], [], True)
    assert sizes_to_pass([doubled]) == ([(0, 0, 2)], [n], True)
    assert sizes_to_pass([torch.ones(3)]) == ([], [], True)
