"""What listeners see of the recorder that calls them: a graph that grows, and what each traced tensor is in it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import fx

from subclass_aot.meta import MetaTensor, Spec, Stream

Phase = Literal["forward", "backward"]

if TYPE_CHECKING:  # when the program runs, a recorder is a stream: see Note [Types without a circle]
    from subclass_aot.engine.graph.symint_nodes import SymintNodes

    class Tape(Stream):
        """A recorder, as its listeners see it.

        Attributes:
            graph: The graph so far.
            nodes: Those that this recorder knows.
            symints: The nodes of symbolic sizes.
            phase: What is recorded now.
            listeners: The other listeners, by their subjects.
            begins_read: Tensors of which the program has read where they begin.
            made: Every leaf of this trace, and the wrappers that were used.
        """

        graph: fx.Graph
        nodes: set[fx.Node]
        symints: SymintNodes
        phase: Phase
        listeners: Any
        begins_read: list[Any]
        made: list[weakref.ref[torch.Tensor]]

        @property
        def mutations(self) -> Any:
            """The data and metadata that the program has written."""

        def in_order(self) -> list[fx.Node]:
            """Returns the nodes that this recorder knows, in the order of the graph."""

        def node_of(self, value: Any) -> Any:
            """Returns the node of a leaf or of a symbolic number; what is neither is returned as it is."""

        def written_nodes(self) -> set[fx.Node]:
            """Returns the nodes whose memory was written."""

        def note_used(self, args: tuple[Any, ...]) -> None:
            """Notes what an operator is given, so that the trace knows it."""

        def new_leaf(self, spec: Spec, node: fx.Node) -> MetaTensor:
            """Returns a new leaf that is what a new node gives."""

        def create(
            self,
            op: str,
            target: fx.node.Target,
            args: tuple[Any, ...] = (),
            name: str | None = None,
            kwargs: dict[str, Any] | None = None,
        ) -> fx.Node:
            """Returns a new node, which this recorder knows."""
else:
    Tape = Stream
