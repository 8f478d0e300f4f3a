"""Scripts get smaller as long as they show what they should."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.testing.inputs import Leaf
from subclass_aot.testing.record import record
from subclass_aot.testing.reduce import reduced
from subclass_aot.testing.script import Script


def program(x: Any, y: Any) -> Any:
    z = (x @ y).exp()
    with torch.no_grad():
        w = z.sin() * 2
    return w + x.sum(), y.cos()


def long_script() -> Script:
    base = torch.rand(4, 6).requires_grad_() * 1
    return record(program, [TwoTensor(torch.rand(4, 6), torch.rand(4, 6)), base.t()])


def says(word: str) -> Any:
    """Whether a script still has this word in it, and runs."""

    def shows(script: Script) -> bool:
        try:
            script.function()(*script.make()[0])
        except Exception:
            return False
        return any(word in s.text for s in script.statements)

    return shows


def test_one_statement_on_one_small_dense_input_is_left() -> None:
    small = reduced(long_script(), says(".sin()"), 500)
    assert small.body() == ["v0 = x0.sin()", "return None"]
    (given,) = small.inputs
    assert isinstance(given.tree, Leaf) and given.tree.size == (1, 1) and given.tree.whole
    assert (given.history, given.base, given.tree.storage.values) == ("", None, None)


def test_what_has_to_be_shared_stays() -> None:
    def shares(script: Script) -> bool:
        given, _ = script.make()
        return len(given) == 2 and given[0].untyped_storage().data_ptr() == given[1].untyped_storage().data_ptr()

    x = torch.rand(4, 4)
    small = reduced(record(lambda x, y: (x.sin() + 1, y.t()), [x, x.t()]), shares, 500)
    assert len({leaf.tree.storage for leaf in small.inputs if isinstance(leaf.tree, Leaf)}) == 1
    assert not shares(reduced(small, lambda script: len(script.inputs) == 2, 500))


def test_tries_are_counted() -> None:
    tried: list[Script] = []

    def shows(script: Script) -> bool:
        tried.append(script)
        return False

    script = long_script()
    assert reduced(script, shows, 7).body() == script.renamed().body() and len(tried) == 7
