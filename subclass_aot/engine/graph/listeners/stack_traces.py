"""The lines of the user's code that made a node."""

from __future__ import annotations

from typing import Any

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import format_frames, user_frames
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape


class StackTraces(GraphListener):
    """Notes the user's lines; in backward, those of the forward operator that a gradient belongs to.

    Attributes:
        given: The lines of all nodes from now on, where a graph is recorded again.
    """

    is_of_every_program = True

    def __init__(self) -> None:
        self.given: str | None = None
        self._frames: dict[int, tuple[Any, ...]] = {}  # of forward, by the sequence number of autograd

    def on_node(self, recorder: Tape, node: fx.Node) -> None:
        node.meta["stack_trace"] = self._now(recorder.phase) if self.given is None else self.given

    def _now(self, phase: str) -> str:
        if phase == "backward":
            return format_frames(self._frames.get(_torch.autograd.sequence_number_of_current_gradient(), ()))
        frames = user_frames()
        self._frames.setdefault(_torch.autograd.last_sequence_number(), frames)
        return format_frames(frames)
