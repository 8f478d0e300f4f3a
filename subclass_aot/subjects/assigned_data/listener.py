"""Tensors that get the memory of another in a trace, by `x.data = y`.

From there on the tensor stands for what the other stands for: its node, its storage, its metadata. Where it is an
input, the call has to assign as well, when the graph has run; what the input was stands in a leaf of its own, through
which writes from before come back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.descriptors import BufferInput, HeldInput, ParamInput, PlainInput, descriptor_of
from subclass_aot.engine.graph import GraphListener, assignments, tape
from subclass_aot.engine.outcome import Outcome
from subclass_aot.engine.trace import TracedInputs
from subclass_aot.meta import MetaTensor, new_leaf
from subclass_aot.subjects.assigned_data.results import with_assigned_data

_BACKWARD = "that happens while gradients are computed"
_WRAPPER = "{kind} is no dense tensor of its own: a part of a wrapper, or of a class"

_INPUTS = PlainInput | HeldInput | ParamInput | BufferInput


class AssignedData(GraphListener):
    """Knows which inputs got the memory of another tensor.

    Attributes:
        before: The leaf of each such input, by its `id`, and what it was.
    """

    def __init__(self) -> None:
        self.before: dict[int, tuple[MetaTensor, MetaTensor]] = {}

    def collections(self) -> list[Collection[Any]]:
        return [*self.before.values()]

    def on_outcome(
        self, recorder: tape.Tape, outcome: Outcome, results: list[Any], inputs: TracedInputs
    ) -> tuple[Outcome, list[Any]]:
        return with_assigned_data(outcome, results, inputs, recorder, self.before.values())

    def note(self, recorder: tape.Tape, leaf: MetaTensor, other: torch.Tensor) -> MetaTensor:
        """Notes an assignment; returns the leaf that gives its memory.

        Raises:
            LastingChangeError: A call could not do that again.
        """
        if recorder.phase == "backward":
            raise assignments.not_assigned(_BACKWARD)
        other = _torch.plain_subclasses.leaf_of(other)
        if not isinstance(other, MetaTensor):
            if type(other) not in (torch.Tensor, torch.nn.Parameter):
                raise assignments.not_assigned(_WRAPPER.format(kind=f"the {type(other).__name__} that is assigned"))
            with _torch.dispatch.disable_current_modes():
                other = recorder.lift(other)
        assignments.refuse_history(leaf)
        if leaf.meta_tag.op == "placeholder" and id(leaf) not in self.before:
            if not isinstance(descriptor_of(leaf.meta_tag), _INPUTS):
                raise assignments.not_assigned(_WRAPPER.format(kind=f"{descriptor_of(leaf.meta_tag)}"))
            before = new_leaf(leaf.meta_spec, leaf.meta_storage)
            before.meta_tag = leaf.meta_tag
            self.before[id(leaf)] = leaf, before
        return other
