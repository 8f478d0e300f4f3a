"""Keeps what a joint graph does once out of the reach of partitioners of others.

Note [What runs once]
~~~~~~~~~~~~~~~~~~~~~
A partitioner that trades memory for time computes parts of forward again in backward, and moves parts of the one into
the other. That is no matter for what follows from inputs. But a draw of random numbers gives others the second time,
and an operator without a result, or with an effect, does twice what it is there for; or never, since nobody reads it.
So a partitioner of others is given a graph without them: what they read is one more output, and what they give is one
more input, of forward where they were recorded in forward, and a tangent otherwise. So what backward reads of them is
saved. Afterwards they are put back, in their order.

Where a policy wants a draw again (`meta["recompute"]`), the state of the generator before it is the input. The
partitioner is given a draw from that state, which gives the same wherever it stands.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from subclass_aot.base import _torch
from subclass_aot.engine.descriptors import Descriptor, Intermediate, describe, descriptor_of
from subclass_aot.engine.passes import check_inputs, copied_graph, copied_node, draws, is_backward, nodes
from subclass_aot.errors import CompilerResultError
from subclass_aot.meta import Spec, new_leaf

_AGAIN = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)

_ORDER = """The {which} graph of the partitioner cannot run {operator} in the order of the joint graph.
  Node:    {node}, which reads what comes of a later one
  Instead: leave what such operators read as it is in the joint graph."""

_INPUTS = "The backward graph of the partitioner has {found} inputs, fewer than the {count} tangents of the call."


@dataclass(frozen=True, slots=True)
class _Once:
    """A node of a joint graph that runs once.

    Attributes:
        node: The node.
        inputs: The nodes that it reads.
        values: The nodes of what it gives, each a tensor or a number.
        keeps_state: Whether it is drawn again from the state of the generator.
    """

    node: fx.Node
    inputs: tuple[fx.Node, ...]
    values: tuple[fx.Node, ...]
    keeps_state: bool

    @staticmethod
    def of(node: fx.Node) -> _Once:
        values = tuple(_values(node))
        again = bool(values) and not is_backward(node) and node.meta.get("recompute") in _AGAIN
        again = again and not nodes.has_side_effect(node)
        return _Once(node, tuple(node.all_input_nodes), values, again and _device(values) is not None)

    @property
    def num_given(self) -> int:
        """How many inputs stand for what it gives."""
        return 1 if self.keeps_state else len(self.values)


class RemovedOnce:
    """The nodes that were removed from a joint graph for a partitioner of others. See Note [What runs once].

    Attributes:
        joint: The joint graph.
        given: The graph for the partitioner; the joint graph itself if nothing runs once.
        num_fwd_outputs: How many of its outputs belong to forward.
    """

    def __init__(self, joint: fx.GraphModule, num_fwd_outputs: int) -> None:
        self.joint, self.given = joint, joint
        self._num_outputs = num_fwd_outputs
        once = [_Once.of(node) for node in joint.graph.nodes if _runs_once(node)]
        self._forward = [each for each in once if not is_backward(each.node)]
        self._backward = [each for each in once if is_backward(each.node)]
        self.num_fwd_outputs = num_fwd_outputs + _count_of_outputs(self._forward)
        if once:
            self.given = copied_graph(joint)
            self._remove()

    def put_back(self, forward: fx.GraphModule, backward: fx.GraphModule) -> None:
        """Puts what was removed into the graphs that the partitioner has made.

        Raises:
            CompilerResultError: The graphs have other inputs than they should, or cannot run it in its order.
        """
        if self.given is self.joint:
            return
        inputs = forward.graph.find_nodes(op="placeholder")
        count = sum(not is_backward(node) for node in self.joint.graph.find_nodes(op="placeholder"))
        given = sum(each.num_given for each in self._forward)
        check_inputs(len(inputs) - given, count)
        _put_back(forward, self._forward, inputs[count:], self._num_outputs, "forward")
        inputs = backward.graph.find_nodes(op="placeholder")
        given = sum(each.num_given for each in self._backward)
        if len(inputs) < given:
            raise CompilerResultError(_INPUTS.format(found=len(inputs), count=given))
        num_outputs = len(backward.graph.output_node().args[0]) - _count_of_outputs(self._backward)  # type: ignore[arg-type]
        _put_back(backward, self._backward, inputs[len(inputs) - given :], num_outputs, "backward")

    def _remove(self) -> None:
        graph = self.given.graph
        copies = dict(zip(self.joint.graph.nodes, graph.nodes, strict=True))
        output = graph.output_node()
        values: Any = output.args[0]
        descs: Sequence[Descriptor] = descriptor_of(output)
        halves = slice(self._num_outputs), slice(self._num_outputs, None)
        all_values: list[Any] = []
        all_descs: list[Descriptor] = []
        for half, all_once in zip(halves, (self._forward, self._backward), strict=True):
            read = [(each.node.name, node) for each in all_once for node in each.inputs]
            all_values += [*values[half], *(copies[node] for _, node in read)]
            all_descs += [*descs[half], *(Intermediate(f"{node.name}, which {reader} reads") for reader, node in read)]
        output.args = (tuple(all_values),)
        describe(output, tuple(all_descs))
        for each in (*self._forward, *self._backward):
            _remove(graph, each, copies)
        self.given.recompile()


def _runs_once(node: fx.Node) -> bool:
    return draws(node) or nodes.has_no_result(node) or nodes.has_side_effect(node)


def _count_of_outputs(all_once: Sequence[_Once]) -> int:
    return sum(len(each.inputs) for each in all_once)


def _values(node: fx.Node) -> Iterator[fx.Node]:
    """Yields the nodes of the tensors and numbers that a node gives, of those that somebody reads."""
    if not isinstance(node.meta.get("val"), tuple | list):
        if not nodes.has_no_result(node):
            yield node
        return
    for item in node.users:
        yield from _values(item)


def _device(values: Sequence[fx.Node]) -> torch.device | None:
    """Returns the device whose generator a draw takes its numbers from, if torch can draw from a state of that."""
    device = getattr(values[0].meta.get("val"), "device", None)
    return device if device is not None and device.type in ("cpu", "cuda") else None


def _remove(graph: fx.Graph, once: _Once, copies: dict[fx.Node, fx.Node]) -> None:
    """Puts inputs of a graph in the place of what a node gives."""
    node = copies[once.node]
    if once.keeps_state:
        state = _placeholder(graph, f"the state of the generator before {node.name}", _meta_of_state(once))
        with graph.inserting_before(node):
            draw = _torch.generator.draw_from_state()
            again = graph.call_function(draw, (state, node.target, *node.args), node.kwargs)  # type: ignore[arg-type]
        again.meta = dict(node.meta)
        node.replace_all_uses_with(again)
    else:
        for value in once.values:
            copies[value].replace_all_uses_with(_placeholder(graph, value.name, dict(value.meta)))
    _erase_with_items(graph, node)


def _meta_of_state(once: _Once) -> dict[str, Any]:
    device = _device(once.values)
    state = torch.get_rng_state() if device is None or device.type == "cpu" else torch.cuda.get_rng_state(device)
    spec = Spec.of(state)
    return {"spec": spec, "val": new_leaf(spec), "partitioner_tag": once.node.meta["partitioner_tag"]}


def _placeholder(graph: fx.Graph, name: str, meta: dict[str, Any]) -> fx.Node:
    """Appends an input to those of forward or to the tangents, as `meta` says, under a name like theirs."""
    inputs = graph.find_nodes(op="placeholder")
    names, number = {node.target for node in inputs}, len(inputs)
    prefix = "tangents" if meta["partitioner_tag"] == "is_backward" else "primals"
    while f"{prefix}_{number}" in names:
        number += 1
    earlier = [node for node in inputs if prefix == "tangents" or not is_backward(node)]
    with graph.inserting_after(earlier[-1]) if earlier else graph.inserting_before(next(iter(graph.nodes))):
        given = graph.placeholder(f"{prefix}_{number}")
    given.meta = {key: meta[key] for key in ("spec", "val", "partitioner_tag") if key in meta}
    describe(given, Intermediate(name))
    return given


def _erase_with_items(graph: fx.Graph, node: fx.Node) -> None:
    for item in list(node.users):
        _erase_with_items(graph, item)
    graph.erase_node(node)


def _put_back(
    module: fx.GraphModule, all_once: Sequence[_Once], inputs: Sequence[fx.Node], num_outputs: int, which: str
) -> None:
    """Puts nodes that run once into a graph.

    Args:
        module: The graph.
        all_once: What runs once.
        inputs: The inputs that stand for what it gives.
        num_outputs: How many outputs there are before those that it reads.
        which: What the graph is called in errors.

    Raises:
        CompilerResultError: They cannot run in their order.
    """
    graph, output = module.graph, module.graph.output_node()
    made, given, position = [], iter(inputs), num_outputs
    for each in all_once:
        values: Any = output.args[0]
        count = len(each.inputs)
        reads = dict(zip(each.inputs, values[position : position + count], strict=True))
        position += count
        with graph.inserting_before(output):
            if each.keeps_state:
                made.append(_with_state(graph, each, reads, next(given)))
                continue
            copies = {each.node: copied_node(graph, each.node, reads)}
            made.append(copies[each.node])
            for value, placeholder in zip(each.values, given, strict=False):
                placeholder.replace_all_uses_with(_copied_item(graph, value, copies))
                graph.erase_node(placeholder)
    values = output.args[0]
    output.args = ((*values[:num_outputs], *values[position:]),)
    _put_in_order(graph, made, which)
    module.recompile()


def _copied_item(graph: fx.Graph, value: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """Copies a node of what another gives, and those between them."""
    if value not in copies:
        (given,) = value.all_input_nodes
        _copied_item(graph, given, copies)
        copies[value] = copied_node(graph, value, copies)
    return copies[value]


def _with_state(graph: fx.Graph, once: _Once, reads: dict[fx.Node, fx.Node], placeholder: fx.Node) -> fx.Node:
    """Puts back a draw that backward may repeat: it gives the state before it, too."""
    args, kwargs = fx.map_arg((once.node.args, once.node.kwargs), reads.__getitem__)
    both = graph.call_function(_torch.generator.draw_and_keep_state(), (once.node.target, *args), kwargs)  # type: ignore[arg-type]
    state, result = (graph.call_function(operator.getitem, (both, i)) for i in range(2))
    state.meta, result.meta = _meta_of_state(once), dict(once.node.meta)
    both.meta = {**once.node.meta, "val": (state.meta["val"], result.meta["val"])}
    both.meta.pop("spec", None)
    for again in list(placeholder.users):
        if again.target is _torch.generator.draw_from_state():
            again.replace_all_uses_with(result)
            graph.erase_node(again)
    placeholder.replace_all_uses_with(state)
    graph.erase_node(placeholder)
    return both


def _put_in_order(graph: fx.Graph, once: Sequence[fx.Node], which: str) -> None:
    """Moves nodes of a graph so that each stands behind what it reads, and some in a given order.

    Raises:
        CompilerResultError: One of them reads what comes of a later one.
    """
    earlier = dict(zip(once[1:], once, strict=False))
    order: dict[fx.Node, None] = {}
    begun: set[fx.Node] = set()
    for last in graph.nodes:
        todo = [last]
        while todo:
            node = todo[-1]
            before = [*node.all_input_nodes, *([earlier[node]] if node in earlier else [])]
            wanted = [n for n in before if n not in order]
            if node in order or not wanted:
                order[todo.pop()] = None
            elif node in begun:
                raise CompilerResultError(_ORDER.format(which=which, node=node.name, operator=node.target))
            else:
                begun.add(node)
                todo += wanted
    for node in order:
        if node.op not in ("placeholder", "output"):
            graph.output_node().prepend(node)
