"""What a joint graph does once, whatever a partitioner of others makes of it.

Note [What runs once]
~~~~~~~~~~~~~~~~~~~~~
A partitioner that trades memory for time computes parts of forward again in backward. That is no matter for what
follows from inputs. A draw of random numbers gives others the second time, and an operator without a result does twice
what it is there for. Torch's partitioners do that where memory is scarce, and for draws that nobody reads they always
do; they also move into backward what only backward reads. So after a partition of others each draw, and each operator
without a result, stands where it was recorded, once and in its order, and what backward reads of it is saved.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import fx

from subclass_aot.errors import CompilerResultError
from subclass_aot.passes.graphs import copied_graph
from subclass_aot.passes.nodes import copied_node, draws, has_no_result, is_backward, is_symint

_ORIGIN = "joint_node"  # in `meta`: the name of the node of the joint graph

_UNKNOWN = """The backward graph of the partitioner draws random numbers, and nothing tells whether forward has drawn them.
  Node:    {node}, {operator}
  Drawn again they would be others, and the gradients wrong.
  Instead: copy nodes with their names or with their `meta`, as `torch.fx.Graph.node_copy` does."""

_ORDER = """The {which} graph of the partitioner cannot draw random numbers in the order of the joint graph.
  Node:    {node}, {operator}, reads what comes of a later draw
  Instead: leave the inputs of draws as they are in the joint graph."""


def to_partition(joint: fx.GraphModule) -> fx.GraphModule:
    """Copies a joint graph for a partitioner of others, which may change it.

    Operators without a result are left out: torch's partitioners do not expect any. `run_once` puts them back.
    """
    given = copied_graph(joint)
    for node in list(given.graph.nodes):
        node.meta[_ORIGIN] = node.name
        if has_no_result(node):
            given.graph.erase_node(node)
    given.recompile()
    return given


def run_once(joint: fx.GraphModule, forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Changes the graphs of a partitioner so that each draw, and each operator without a result, runs once.

    See Note [What runs once].

    Args:
        joint: The joint graph as it was recorded.
        forward: The forward graph that the partitioner made of what `to_partition` gave.
        backward: The backward graph.
        num_fwd_outputs: How many outputs of the joint graph belong to forward.

    Raises:
        CompilerResultError: Backward makes a draw that nothing is known of, or draws cannot be made in their order.
    """
    once = [node for node in joint.graph.nodes if draws(node) or has_no_result(node)]
    if not once:
        return
    first, second = _Half(joint, forward), _Half(joint, backward)
    # A pass of the partitioner may have put other draws in the place of those that it was given.
    others = {node.name: node for node in forward.graph.nodes if draws(node) and node not in first.origins}
    of_forward = [n for n in once if not is_backward(n)]
    of_backward = [n for n in once if is_backward(n)]
    first.complete(n for n in of_forward if not (others and draws(n)))
    saved = _Saved(first, second, num_fwd_outputs)
    for node in filter(draws, list(backward.graph.nodes)):
        origin = second.origins.get(node)
        if origin is not None and is_backward(origin):
            continue
        drawn = others.get(node.name) if origin is None else first.found.get(origin)
        if drawn is not None:
            saved.replace(node, drawn)
        elif any(node.target == known.target for known in of_forward):
            raise CompilerResultError(_UNKNOWN.format(node=node.name, operator=node.target))
    second.complete(of_backward, saved)
    for half, nodes, which in ((first, of_forward, "forward"), (second, of_backward, "backward")):
        _put_in_order(half.graph, [half.found[n] for n in nodes if n in half.found], which)
        half.owner.recompile()


class _Half:
    """A graph of a partitioner, and how its nodes belong to those of the joint graph.

    Attributes:
        origins: The nodes of the joint graph that its nodes are copies of, or stand for as inputs.
        found: Its nodes by those of the joint graph.
    """

    def __init__(self, joint: fx.GraphModule, owner: fx.GraphModule) -> None:
        self.joint, self.owner, self.graph = joint, owner, owner.graph
        of_joint = {node.name: node for node in joint.graph.nodes if node.op != "output"}
        self.origins = {n: origin for n in self.graph.nodes if (origin := _origin_of(n, of_joint)) is not None}
        self.found = {origin: n for n, origin in self.origins.items()}

    def erase(self, node: fx.Node) -> None:
        """Erases a node that nobody reads."""
        origin = self.origins.pop(node, None)
        if origin is not None and self.found[origin] is node:
            del self.found[origin]
        self.graph.erase_node(node)

    def complete(self, wanted: Iterable[fx.Node], saved: _Saved | None = None) -> None:
        """Appends nodes of the joint graph that are missing, and those that they need.

        Args:
            wanted: The nodes.
            saved: What gives backward the results of forward.
        """
        missing: set[fx.Node] = set()
        todo = [node for node in wanted if node not in self.found]
        while todo:
            node = todo.pop()
            if node in missing or node in self.found:
                continue
            missing.add(node)
            if saved is None or is_backward(node):
                todo += node.all_input_nodes
        if not missing:
            return
        for node in self.joint.graph.nodes:
            if node in missing and saved is not None and not is_backward(node):
                saved.first.complete([node])
                self.found[node] = saved.given(saved.first.found[node])
            elif node in missing:
                with self.graph.inserting_before(self.graph.output_node()):
                    self.found[node] = copied_node(self.graph, node, self.found)
                if node.op == "get_attr":
                    setattr(self.owner, str(node.target), getattr(self.joint, str(node.target)))


def _origin_of(node: fx.Node, of_joint: Mapping[str, fx.Node]) -> fx.Node | None:
    for name in (node.meta.get(_ORIGIN), node.name):
        origin = of_joint.get(name)
        if origin is not None and (origin.target == node.target or node.op == "placeholder" and name == node.name):
            return origin
    return None


class _Saved:
    """What forward saves for backward: the last outputs of the one graph, and the first inputs of the other.

    Outputs are tensors, then numbers; inputs are numbers, then tensors, then tangents.
    """

    def __init__(self, first: _Half, second: _Half, num_fwd_outputs: int) -> None:
        self.first, self.second = first, second
        outputs: Any = first.graph.output_node().args[0]
        self.results, saved = list(outputs[:num_fwd_outputs]), list(outputs[num_fwd_outputs:])
        self.symints = [n for n in saved if is_symint(n)]
        self.tensors = [n for n in saved if not is_symint(n)]
        self.inputs = list(second.graph.find_nodes(op="placeholder"))

    def replace(self, node: fx.Node, drawn: fx.Node) -> None:
        """Replaces a draw in backward by what forward has drawn, and leaves out what nobody reads then."""
        items = [user for user in node.users if user.target is operator.getitem]
        for item in items:
            item.replace_all_uses_with(self.given(self._item(drawn, item)))
            self.second.erase(item)
        if node.users:
            node.replace_all_uses_with(self.given(drawn))
        self._erase(self.second, node)

    def given(self, node: fx.Node) -> fx.Node:
        """Returns the input of backward that a node of forward is saved as."""
        saved = self.symints if is_symint(node) else self.tensors
        start = 0 if is_symint(node) else len(self.symints)
        if node in saved:
            return self.inputs[start + saved.index(node)]
        position = start + len(saved)
        at = self.inputs[position - 1].append if position else self._before_all
        given = self.second.graph.placeholder(node.name)
        at(given)
        given.meta = dict(node.meta)
        self.inputs.insert(position, given)
        saved.append(node)
        self._tell()
        return given

    def _before_all(self, node: fx.Node) -> None:
        next(iter(self.second.graph.nodes)).prepend(node)

    def _item(self, drawn: fx.Node, item: fx.Node) -> fx.Node:
        """Returns the node of forward for one of several things that a draw gives."""
        for user in drawn.users:
            if user.target is operator.getitem and user.args[1] == item.args[1]:
                return user
        with self.first.graph.inserting_after(drawn):
            return copied_node(self.first.graph, item, {item.all_input_nodes[0]: drawn})

    def _erase(self, half: _Half, node: fx.Node) -> None:
        """Erases nodes, beginning with one that nobody reads, and saves no more what was saved for them alone."""
        todo = [(half, node)]
        while todo:
            half, node = todo.pop()
            todo += [(half, read) for read in node.all_input_nodes if self._serves_only(read, node)]
            if node.op == "placeholder":
                todo += self._no_longer_saved(node)
            half.erase(node)

    def _tell(self) -> None:
        self.first.graph.output_node().args = ((*self.results, *self.tensors, *self.symints),)


def _put_in_order(graph: fx.Graph, once: Sequence[fx.Node], which: str) -> None:
    """Moves nodes of a graph so that some stand in a given order, each node behind what it reads.

    Raises:
        CompilerResultError: One of them reads what comes of a later one.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    if all(position[x] < position[y] for x, y in zip(once, once[1:], strict=False)):
        return
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
    for node in [n for n in order if n.op not in ("placeholder", "output")]:
        graph.output_node().prepend(node)
