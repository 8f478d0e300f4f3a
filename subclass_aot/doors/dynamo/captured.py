"""A graph that Dynamo captured, as a function of tensors alone."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optree
import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import captured_at
from subclass_aot.engine.objects import sized
from subclass_aot.engine.sizes import symbols_of
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta.symbols import is_symbolic

_EXAMPLE = "example_value"
"""Where nodes of Dynamo's have what it computed without data."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The inputs of a graph that Dynamo captured, and what they are as tensors.

    Attributes:
        sources: For each, the position of the tensor that it is, or that brings a number; else None.
        numbers: Which are numbers that are no size of a tensor.
        negated: Which of these are below zero: sizes are not, so their negatives are brought.
        held: The parameters and constants of the graph, which are inputs, too, after the others.
    """

    sources: tuple[int | None, ...]
    numbers: frozenset[int]
    negated: frozenset[int]
    held: tuple[torch.Tensor, ...]

    def tensors(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Returns the inputs of a call as tensors."""
        here = [i for i in range(len(inputs)) if self.sources[i] is not None]
        return (
            *(sized(abs(_torch.symbolic.example_of(inputs[i]))) if i in self.numbers else inputs[i] for i in here),
            *self.held,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A graph that Dynamo captured, as a function of tensors alone.

    Attributes:
        graph_module: The graph.
        inputs: Its inputs.
        known: What those are that no tensor brings: symbols, or constants.
        examples: Tensors or numbers with Dynamo's symbols, by the path of the tensor.
    """

    graph_module: fx.GraphModule
    inputs: Inputs
    known: Mapping[int, Any]
    examples: Mapping[str, Any]

    @property
    def __name__(self) -> str:
        return "what torch.compile captured"

    @staticmethod
    def of(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Captured:
        """Reads it."""
        placeholders = gm.graph.find_nodes(op="placeholder")
        gm, held = _with_tensors_as_inputs(gm)
        given: list[Any] = [node.meta.get(_EXAMPLE) for node in placeholders]
        told = {s for example in given if isinstance(example, torch.Tensor) for s in symbols_of(example)}
        sources: list[int | None] = []
        known: dict[int, Any] = {}
        examples: dict[str, Any] = {}
        numbers, negated = set(), set()
        for i, (example, real) in enumerate(zip(given, example_inputs, strict=True)):
            here = isinstance(real, torch.Tensor)
            if not here and not is_symbolic(example):
                known[i] = real
            elif not here and symbols_of(example) <= told:
                known[i] = example
            elif not here:
                numbers.add(i)
                here = True
                if example < 0:  # Dynamo guards the sign from here on
                    negated.add(i)
                    example = -example
            position = len(sources) - sources.count(None)
            sources.append(position if here else None)
            if here and example is not None:
                examples[f"args[{position}]"] = example
        count = len(sources) - sources.count(None)
        sources += range(count, count + len(held))
        inputs = Inputs(tuple(sources), frozenset(numbers), frozenset(negated), held)
        return Captured(gm, inputs, known, examples)

    @property
    def loses_sizes(self) -> bool:
        """Whether a size of a wrapper inside of another is a number here that no guard of Dynamo's has."""
        return any(isinstance(x, torch.Tensor) and _loses_sizes(x, outermost=True) for x in self.examples.values())

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Runs the graph."""
        given: list[Any] = [
            self.known.get(i) if at is None else tensors[at] for i, at in enumerate(self.inputs.sources)
        ]
        for i in self.inputs.numbers:
            size = given[i].shape[0]
            given[i] = -size if i in self.inputs.negated else size
        return WithLines(self.graph_module).run(*given)


def examples_of_results(gm: fx.GraphModule) -> list[Any]:
    """Returns what Dynamo computed of the results of a graph: tensors and numbers with its symbols, None for others."""
    results = gm.graph.output_node().args[0]
    listed = results if isinstance(results, tuple | list) else ()
    return [x.meta.get(_EXAMPLE) if isinstance(x, fx.Node) else None for x in listed]


def nothing(*tensors: torch.Tensor) -> None:
    """Does nothing; it is the function of a captured graph where a call is flattened: such a graph holds no objects."""


class WithLines(fx.Interpreter):
    """Runs a graph, operator by operator, as if the lines ran that each was captured from."""

    extra_traceback = False  # what this library says of an error is enough

    def run_node(self, n: fx.Node) -> Any:
        """Runs one operator."""
        with captured_at(n.stack_trace or ""), fx.traceback.annotate(n.meta.get("custom", {})):
            return super().run_node(n)


def _loses_sizes(example: torch.Tensor, outermost: bool) -> bool:
    """Returns whether torch has made a wrapper inside of another with the sizes of one call, around leaves with
    symbols.

    It makes symbols for the outermost wrapper and for leaves. A class that does not compute its size from its inner
    tensors, as `DTensor` does not, is given that of the call.
    """
    if not _torch.wrappers.is_traceable_wrapper_subclass(example):
        return False
    inner = [getattr(example, name) for name in example.__tensor_flatten__()[0]]
    parts = [x for part in inner for x in optree.tree_leaves(part) if isinstance(x, torch.Tensor)]
    lost = not outermost and not _has_symbols(example) and any(map(_has_symbols, FlattenPlan.leaves_of(example)))
    return lost or any(_loses_sizes(x, outermost=False) for x in parts)


def _has_symbols(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and any(map(is_symbolic, (*x.size(), *x.stride())))


def _with_tensors_as_inputs(gm: fx.GraphModule) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Returns a graph that has no tensors of its own; and those that it had, which are inputs after the others."""
    nodes: dict[str, list[fx.Node]] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(_attribute(gm, node.target), torch.Tensor):
            nodes.setdefault(node.target, []).append(node)
    if not nodes:
        return gm, ()
    found = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    last = found.graph.find_nodes(op="placeholder")
    with found.graph.inserting_before(next(n for n in found.graph.nodes if n not in last)):
        made = {target: _placeholder(found.graph) for target in nodes}
    for node in found.graph.find_nodes(op="get_attr"):
        if node.target in made:
            node.replace_all_uses_with(made[node.target])
            found.graph.erase_node(node)
    found.recompile()
    return found, tuple(_attribute(gm, target) for target in nodes)


def _placeholder(graph: fx.Graph) -> fx.Node:
    """Returns one more input, called as no other is: its target is what the generated Python calls it."""
    made = graph.placeholder("held")
    made.target = made.name
    return made


def _attribute(gm: fx.GraphModule, target: str) -> Any:
    return functools.reduce(getattr, target.split("."), gm)
