"""Real tensors that a traced program meets: constants of the graph, literals, and inputs whose values it may read."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.engine.call import refuse_without_memory
from subclass_aot.engine.graph.listeners.constants import Earlier, Readable, known_value
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.meta import MetaTensor, Spec, Storage


class RealTensors(GraphListener):
    """Knows which leaf stands for a real tensor, and which values are the same at each call.

    Attributes:
        constants: Real tensors met on the way, by attribute name.
        bytes_of: How large the storages of inputs are, as far as that is known.
        read_values: The values of inputs that were read while tracing, by flat slot.
    """

    is_of_every_program = True

    def __init__(self) -> None:
        self.constants: dict[str, torch.Tensor] = {}
        self.bytes_of: dict[Storage, int] = {}
        self.read_values: dict[int, Any] = {}
        self._readable: dict[fx.Node, Readable] = {}
        self._stand_ins: dict[int, tuple[torch.Tensor, MetaTensor]] = {}
        self._earlier = Earlier({}, set())
        self._count = 0  # of the nodes that were recorded when the last number was found

    def fork(self) -> RealTensors:
        fork = RealTensors()
        fork.constants, fork.read_values = dict(self.constants), self.read_values
        fork.bytes_of = self.bytes_of
        fork._readable, fork._stand_ins = dict(self._readable), dict(self._stand_ins)
        return fork

    def forget(self) -> None:
        self._readable.clear()
        self._stand_ins.clear()
        self._earlier = Earlier({}, set())

    def stand_in(self, tensor: torch.Tensor, leaf: MetaTensor) -> None:
        """Registers `leaf` as the traced tensor for the real `tensor` from now on."""
        self._stand_ins[id(tensor)] = tensor, leaf  # the tensor is kept alive, so that its id stays its own

    def leaf_of(self, recorder: Tape, tensor: torch.Tensor) -> MetaTensor:
        """Returns the traced tensor for a real one; a constant, if none was registered before."""
        known = self._stand_ins.get(id(tensor))
        if known is not None:
            return known[1]
        refuse_without_memory(tensor)
        leaf = self.constant(recorder, tensor.detach())
        self.stand_in(tensor, leaf)
        return leaf

    def constant(self, recorder: Tape, tensor: torch.Tensor) -> MetaTensor:
        """Returns a graph attribute that holds a real tensor.

        Its name is new here: where a graph runs again, it may meet real tensors that it did not meet before.
        """
        name = f"_constant{len(self.constants)}"
        self.constants[name] = tensor
        return recorder.new_leaf(Spec.of(tensor), recorder.create("get_attr", name))

    def literal(self, recorder: Tape, tensor: torch.Tensor) -> None:
        """Notes that a real tensor has the same values at each call."""
        with _torch.dispatch.disable_current_modes():
            leaf = recorder.lift(tensor)
        with recorder:
            self.stand_in(tensor, torch.ops.aten.lift_fresh_copy.default(leaf))

    def let_read(self, leaf: MetaTensor, tensor: torch.Tensor, path: str, slot: int) -> None:
        """Registers an input whose values may be read from now on; `read_values` has those that were."""
        if tensor.device.type != "meta" and not isinstance(tensor, MetaTensor):
            self._readable[leaf.meta_tag] = Readable(path, tensor, partial(self._note, slot, tensor))

    def _note(self, slot: int, tensor: torch.Tensor) -> None:
        if slot not in self.read_values:
            self.read_values[slot] = tensor.tolist()

    def value_of(self, recorder: Tape, leaf: MetaTensor) -> torch.Tensor | None:
        """Returns the values of a leaf, if they are known."""
        node, count = recorder.node_of(leaf), len(recorder.nodes)
        if self._count != count:
            self._count = count
            self._earlier.numbers.clear()
        written = recorder.written_nodes()
        return known_value(node, recorder.nodes, self.constants, written, self._readable, self._earlier)
