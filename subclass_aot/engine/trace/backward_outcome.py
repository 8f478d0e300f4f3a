"""Reads what hooks put into objects, as tensors and numbers that the graphs compute. See Note [Outcome of backward]."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Self

import torch
from torch import fx

from subclass_aot.base._stack import is_user_code
from subclass_aot.base.generators_elsewhere import drawn_elsewhere
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.call import refuse_without_memory
from subclass_aot.engine.descriptors import Number, OutputDescriptor, PutByBackward
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.outcome import AfterForward, BackwardOutcome, OlderObjects
from subclass_aot.engine.outputs import ComputedSymints, Constant, Output, SameAsOutput, Value
from subclass_aot.engine.passes import is_backward
from subclass_aot.engine.trace.autograd_graph import has_history
from subclass_aot.engine.trace.inputs import TracedInputs
from subclass_aot.engine.trace.outputs import is_traced, part_of
from subclass_aot.errors import MutationError
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor, Storage
from subclass_aot.meta.symbols import is_symbolic, lasting_key_of

_LEAF = """{path}: while gradients are computed, a new tensor that requires grad is put here.
  Nothing that a compiled backward computes is a leaf of autograd's graph.
  Instead: call requires_grad_() on it where it is used; or put it there in forward."""

_SHARED = """{path}: while gradients are computed, a tensor is put here that shares memory with {other}.
  What backward gives out is computed, and has memory of its own.
  Instead: put a copy, as in `tensor.clone()`; or the tensor itself, as it is there already."""


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """The values that hooks put into objects.

    Attributes:
        outcome: How.
        nodes: The nodes of what backward computes for that.
        numbers: Those of numbers, which forward computes.
    """

    outcome: BackwardOutcome
    nodes: Mapping[OutputDescriptor, fx.Node] = field(default_factory=dict)
    numbers: Mapping[OutputDescriptor, fx.Node] = field(default_factory=dict)


class CodeThatRuns(PutBack):
    """Collects the code of the program that runs within the block, in this thread.

    Where somebody profiles the program, it cannot.
    """

    def __init__(self) -> None:
        self._found: dict[int, CodeType] = {}  # by `id`: Dynamo makes code that has no hash
        self._is_on = sys.getprofile() is None

    def __enter__(self) -> Self:
        super().__enter__()
        if self._is_on:
            sys.setprofile(self._note)
        return self

    def put_back(self) -> None:
        """Stops."""
        if self._is_on:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._found[id(frame.f_code)] = frame.f_code

    @property
    def names(self) -> set[str]:
        """The names that it has, of attributes, variables and keys."""
        mine = [code for code in self._found.values() if is_user_code(code)]
        constants = {x for code in mine for x in code.co_consts if isinstance(x, str)}
        return constants.union(*(code.co_names for code in mine), *(code.co_freevars for code in mine))


def read_put(
    inputs: TracedInputs, after: AfterForward, recorder: Recorder, older: OlderObjects, names: Collection[str]
) -> Put | None:
    """Reads what hooks have put into objects, when backward is over; None where they have changed none.

    Args:
        inputs: The traced inputs.
        after: The objects as forward left them.
        recorder: Has recorded forward and backward.
        older: What is older than that.
        names: The names that the code of hooks has.

    Raises:
        MutationError: A later backward could not put that there.
    """

    def is_read(tensor: torch.Tensor) -> bool:
        leaves = [x for x in FlattenPlan.leaves_of(tensor) if isinstance(x, MetaTensor)]
        return any(is_backward(user) and user in recorder.nodes for x in leaves for user in recorder.node_of(x).users)

    elsewhere = drawn_elsewhere(recorder.listeners.random_numbers.start.elsewhere)
    leaves, paths, left = after.read(older, is_read, names, elsewhere)
    if not left.outcome.changes and not left.retained:
        return None
    reader = _Reader(inputs, after, recorder)
    outputs = tuple(reader.read(leaves, paths))
    return Put(dataclasses.replace(left, outputs=outputs), reader.nodes, reader.numbers)


class _Reader:
    """Says what each tensor or number is."""

    def __init__(self, inputs: TracedInputs, after: AfterForward, recorder: Recorder) -> None:
        self.recorder = recorder
        self.nodes: dict[OutputDescriptor, fx.Node] = {}
        self.numbers: dict[OutputDescriptor, fx.Node] = {}
        self.memory = {Storage.of(x): "an argument" for x in inputs.leaves if isinstance(x, MetaTensor)}
        for result in after.results:
            if isinstance(result, torch.Tensor):
                parts = [x for x in FlattenPlan.leaves_of(result) if isinstance(x, MetaTensor)]
                self.memory |= {Storage.of(x): "a result of the call" for x in parts}

    def read(self, leaves: list[Any], paths: list[str]) -> Iterator[Output]:
        first: dict[int, int] = {}
        for i, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
            if id(leaf) in first:
                yield SameAsOutput(first[id(leaf)])
                continue
            first[id(leaf)] = i
            yield self.tensor(leaf, PutByBackward(i), path) if isinstance(leaf, torch.Tensor) else self.number(leaf)

    def number(self, value: Any) -> Output:
        """Returns a number, or the size of a tensor."""
        if isinstance(value, torch.Size) and any(map(is_symbolic, value)):
            return ComputedSymints(True, tuple(self.computed_number(n) for n in value))
        return ComputedSymints(False, (self.computed_number(value),)) if is_symbolic(value) else Constant(value)

    def computed_number(self, number: Any) -> Any:
        """Returns the descriptor of a number. Forward computes all numbers, so that there is one place that does."""
        if not is_symbolic(number):
            return number
        desc = Number(lasting_key_of(number))
        self.numbers[desc] = self.recorder.node_of(number)
        return desc

    def tensor(self, tensor: torch.Tensor, desc: OutputDescriptor, path: str) -> Output:
        if tensor.requires_grad and tensor.is_leaf:
            raise MutationError(_LEAF.format(path=path))
        if not is_traced(tensor, path):
            refuse_without_memory(tensor, path)
            return Constant(tensor)
        plan, leaves = FlattenPlan.read([tensor], where=path)
        sources: list[Any] = []
        for slot, leaf in zip(plan.index_map.slots, leaves, strict=True):
            if isinstance(leaf, MetaTensor) and Storage.of(leaf) in self.memory:
                raise MutationError(_SHARED.format(path=path, other=self.memory[Storage.of(leaf)]))
            if not isinstance(leaf, torch.Tensor) and not is_symbolic(leaf):
                sources.append(leaf)
                continue
            part = part_of(desc, slot)
            self.nodes[part] = self.recorder.node_of(leaf)
            sources.append(part)
        return Value(plan.metas[0], tuple(sources), has_history(tensor))
