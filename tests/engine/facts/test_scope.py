"""What of a call counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.facts import Scope
from tests.engine.facts.calls import Tagged


def scope(fn: Callable[..., Any], *args: Any) -> Scope:
    compiled = aot_compile(fn)
    compiled(*args)
    assert compiled._specializations.latest is not None
    return compiled._specializations.latest.scope


def append(x: torch.Tensor, cache: list[Any]) -> None:
    cache.append(x)


def test_of_a_signature() -> None:
    x = torch.ones(4)
    reads, writes = scope(torch.sin, x), scope(lambda x: x.mul_(2), x)
    assert not reads.writes and writes.writes and reads.absent == (("args[0]", ()),)
    with torch.no_grad():
        assert not scope(torch.sin, x).differentiates
    assert reads.differentiates and not reads.lists and scope(append, x, []).lists
    assert scope(lambda x: getattr(x, "a", 1) * x, x).absent == (("args[0]", ("a",)),)
    assert scope(lambda x: x * 2, Tagged(x)).absent == ()


def test_where_wrappers_begin() -> None:
    x = torch.arange(8.0)
    assert scope(lambda x: x * 2, TwoTensor(x[:2], x[:2])).beginnings == ()
    nested = TwoTensor(TwoTensor(x[:2], x[:2]), TwoTensor(x[2:4], x[2:4]))
    assert scope(lambda x: x * 2, nested).beginnings == ((0, ".b"),)
    assert scope(lambda x: x.b.a + x.storage_offset(), nested).beginnings == ((0, ""), (0, ".b"))


@pytest.mark.parametrize(
    "made",
    [
        Scope(),
        Scope(("a",), False, ((0, 1),), (2,), False, False, ("p",), ((0, ("n",)),)),
        Scope(beginnings=((0, ".b"), (1, "")), data=(2,), places=(("args[0].size(0)", "s0"),)),
    ],
)
def test_it_goes_through_json(made: Scope) -> None:
    assert Scope.read(json.loads(json.dumps(made))) == made
