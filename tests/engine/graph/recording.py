"""Recorders without a trace around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot import MetaTensor, Spec
from subclass_aot.engine.descriptors import PlainInput, PlainOutput, Tangent
from subclass_aot.engine.graph import Recorder, remove_mutations

SPEC = Spec.of(torch.ones(3))


def recorded(program: Callable[..., Any], *specs: Spec, recorder: Recorder | None = None) -> tuple[Recorder, Any]:
    """What recorded a program on inputs that look so, or on one of three elements, and what the program returned."""
    recorder = recorder or Recorder()
    with recorder:
        leaves = [
            recorder.placeholder(f"primals_{i + 1}", spec, PlainInput(f"args[{i}]", i))
            for i, spec in enumerate(specs or (SPEC,))
        ]
        return recorder, program(*leaves)


def gone_backward(forward: Recorder, program: Callable[[MetaTensor], Any]) -> tuple[Recorder, Any]:
    """A fork that has recorded a function of a tangent, and what that returned."""
    fork = forward.fork()
    fork.phase = "backward"
    with fork:
        return fork, program(fork.placeholder("tangents_1", SPEC, Tangent(PlainOutput(0))))


def finished(recorder: Recorder, result: Any) -> list[tuple[str, list[str]]]:
    """The nodes of the graph in the end, each with what it reads."""
    graph = remove_mutations(recorder, {PlainOutput(0): recorder.node_of(result)}, []).graph
    graph.lint()
    return [(node.name, [source.name for source in node.all_input_nodes]) for node in graph.nodes]


def raw(recorder: Recorder) -> list[str]:
    """The names of what was recorded, in order, without the inputs."""
    return [node.name for node in recorder.in_order() if node.op != "placeholder"]
