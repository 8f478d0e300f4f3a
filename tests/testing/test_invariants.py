"""Invariants between stages: what holds is let through, and each mistake is named with its stage."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx

import subclass_aot as sa
from subclass_aot.engine import stages
from subclass_aot.engine.descriptors import Intermediate, describe, descriptor_of
from subclass_aot.engine.runtime import Graphs
from subclass_aot.meta import Spec
from subclass_aot.testing.invariants import InvariantError, check

Compiled = tuple[str, Any, Graphs]


@pytest.fixture(autouse=True)
def _not_of_others() -> Iterator[None]:
    before = [*stages.checked_by]
    stages.checked_by.clear()
    yield
    stages.checked_by[:] = before


def compiled(function: Callable[..., Any], *args: torch.Tensor) -> Compiled:
    """What is checked of a function: its name, its joint graph and the graphs."""
    found: list[Compiled] = []
    stages.checked_by.append(lambda *given: found.append(given))
    sa.aot_compile(function)(*args)
    return found[-1]


def trained() -> Compiled:
    w = sa.TwoTensor(torch.ones(3, 3), torch.ones(3, 3)).requires_grad_()
    return compiled(lambda w, x: (w @ x.mul_(2)).relu(), w, torch.ones(3, 3))


def test_what_holds() -> None:
    name, trace, graphs = trained()
    assert graphs.backward is not None
    check(name, trace, graphs)
    check(*compiled(lambda x: x.sin().sum(0, keepdim=True), torch.ones(3, 4)))


def _of_another_size(graphs: Graphs) -> Graphs:
    node = next(n for n in graphs.forward.graph.nodes if n.target is torch.ops.aten.mm.default)
    node.meta["spec"] = Spec.make((3, 4), (4, 1))
    return graphs


def _of_another_dtype(graphs: Graphs) -> Graphs:
    assert graphs.backward is not None
    node = next(n for n in graphs.backward.graph.nodes if n.target is torch.ops.aten.mm.default)
    node.meta["spec"] = Spec.make((3, 3), (3, 1), 0, torch.float64)
    return graphs


def _out_of_order(graphs: Graphs) -> Graphs:
    first = next(n for n in graphs.forward.graph.nodes if n.op == "call_function")
    graphs.forward.graph.output_node().prepend(first)
    return graphs


def _without_a_descriptor(graphs: Graphs) -> Graphs:
    first, second, *_ = graphs.forward.graph.find_nodes(op="placeholder")
    describe(second, descriptor_of(first))
    return graphs


def _saves_more(graphs: Graphs) -> Graphs:
    return dataclasses.replace(graphs, num_saved_symints=1)


def _with_an_input_more(graphs: Graphs) -> Graphs:
    graph = graphs.forward.graph
    first: fx.Node = next(iter(graph.nodes))
    with graph.inserting_before(first):
        more = graph.placeholder("more")
    more.meta.update(first.meta)
    describe(more, Intermediate("more"))
    return graphs


MISTAKES: dict[str, tuple[Callable[[Graphs], Graphs], str]] = {
    "a size": (_of_another_size, r"(?s)mm.*\(3, 4\).*torch gives.*\(3, 3\).*In the forward graph"),
    "a dtype": (_of_another_dtype, r"(?s)float64.*torch gives.*float32.*In the backward graph"),
    "an order": (_out_of_order, r"(?s)not well formed.*In the forward graph"),
    "a descriptor": (_without_a_descriptor, "has no descriptor of its own"),
    "a count": (_saves_more, "are read of it"),
    "an input": (_with_an_input_more, "and a call brings"),
}


@pytest.mark.every_case
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    name, trace, graphs = trained()
    break_it, said = MISTAKES[mistake]
    with pytest.raises(InvariantError, match=said):
        check(name, trace, break_it(graphs))


def test_the_environment_turns_them_on() -> None:
    program = "import subclass_aot as sa\nfrom subclass_aot.engine import stages\nprint(len(stages.checked_by))"
    for asked, count in (("1", "1"), ("0", "0"), ("", "0")):
        environment = {**os.environ, "SUBCLASS_AOT_CHECK": asked}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == count, done.stderr
