"""Plans of graphs."""

from __future__ import annotations

import torch
from torch import fx

from subclass_aot.backends.plan import Call, look_alike, nodes_in, owner_of
from subclass_aot.meta import Spec


def placeholders(count: int) -> list[fx.Node]:
    graph = fx.Graph()
    return [graph.placeholder(f"x{i}") for i in range(count)]


def test_whose_tensor_a_node_is() -> None:
    a, b, c, d = placeholders(4)
    same = {b: a, c: b}
    assert [owner_of(node, same) for node in (a, b, c, d)] == [a, a, a, d]
    assert same == {b: a, c: a}


def test_nodes_in_calls_and_containers() -> None:
    a, b, c, d = placeholders(4)
    call = Call(torch.add, (a, Call(torch.mul, (b, 2))), {"alpha": [c, slice(0, d)]})
    assert list(nodes_in((call,))) == [a, b, c, d]


def test_what_looks_alike() -> None:
    a, b, c = placeholders(3)
    a.meta["spec"], b.meta["spec"] = Spec.of(torch.ones(2, 3)), Spec.of(torch.zeros(2, 3))
    assert look_alike(a, b) and not look_alike(a, c)
    b.meta["spec"] = Spec.of(torch.zeros(3, 2).t())
    assert not look_alike(a, b)
