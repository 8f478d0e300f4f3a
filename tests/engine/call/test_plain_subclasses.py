"""Plain subclasses that note what is called with them, compared with eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import aot_compile


class Node:
    """One call."""

    def __init__(self, name: str, parents: list[Node], context: list[Any]) -> None:
        self.name, self.context = name, context
        self.parents, self.children = dict.fromkeys(parents), dict[Node, None]()
        for parent in parents:
            parent.children[self] = None
        context.append({self: []})


class Drawn(torch.Tensor):
    """Notes each function on the nodes of what it was given, as a class that draws a graph does."""

    nodes: list[Node]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        given = [x.nodes[-1] for x in args if isinstance(x, Drawn) and "nodes" in vars(x)]
        if isinstance(result, Drawn) and given:
            result.nodes = [Node(func.__name__, given, given[0].context)]
        return result


def noted(factory: Any, context: list[Any]) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        context.append(factory.__name__)
        return factory(*args, **kwargs)

    return made


def drawn() -> Any:
    x = torch.ones(2, 3).as_subclass(Drawn)
    x.nodes = [Node("input", [], [])]
    return x * 1


def names(node: Node) -> Any:
    return node.name, [names(child) for child in node.children]


PROGRAMS: dict[str, Any] = {
    "one": lambda x: x * 2,
    "some": lambda x: torch.relu(x.sin()) * 2,
    "twice": lambda x: x + x.cos(),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("notes_factories", [False, True])
def test_a_class_that_draws_a_graph(program: Any, notes_factories: bool, monkeypatch: Any) -> None:
    """One that notes tensors that are made, too, finds those of the trace: then the function itself runs."""
    expected, given = drawn(), drawn()
    result = program(expected)
    compiled = aot_compile(program)
    if not notes_factories:
        found = compiled(given)
    else:
        for name in ("empty", "zeros", "ones", "empty_like", "zeros_like"):
            monkeypatch.setattr(torch, name, noted(getattr(torch, name), given.nodes[0].context))
        with pytest.warns(UserWarning, match="the function itself ran, as in eager mode, since each call"):
            found = compiled(given)
        monkeypatch.undo()
    assert type(found) is Drawn and found.as_subclass(torch.Tensor).equal(result.as_subclass(torch.Tensor))
    assert names(given.nodes[0]) == names(expected.nodes[0])
