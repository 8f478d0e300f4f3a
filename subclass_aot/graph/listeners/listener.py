"""`GraphListener`: a part of a recorder that has one subject."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.meta import MetaTensor
from subclass_aot.operators import argument_at, effects_of

if TYPE_CHECKING:  # which has such listeners
    from subclass_aot.graph.recorder import Recorder


class GraphListener:
    """Is called for operators before they are recorded, as `on_operator` says, and for nodes.

    What is overridden here is called, and nothing else.
    """

    def wants(self, func: _torch.operators.Operator) -> bool:
        """Returns whether `on_operator` and `on_recorded` are called for an operator; a recorder calls this once."""
        return True

    def on_operator(
        self,
        recorder: Recorder,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> bool | None:
        """Is called when an operator has run, before it is recorded; returns True if it is recorded already."""

    def on_node(self, recorder: Recorder, node: fx.Node) -> None:
        """Is called for each new node but those that pick one of several results."""

    def on_recorded(
        self,
        recorder: Recorder,
        node: fx.Node,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        """Is called when an operator has a node, and its results are known by their nodes."""

    def on_write(self, recorder: Recorder, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        """Is called for each leaf that an operator has written, when it is recorded."""

    def on_wrapper_operator(
        self, recorder: Recorder, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Is called before an operator on a wrapper goes to the wrapper's class."""

    def on_lazy_view(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """Is called where `copy` was computed, and eager has a view of `source`: a lazy conjugation or negation."""

    def fork(self) -> Self:
        """Returns what a fork of the recorder has in its place: a copy, if it changes with what is recorded."""
        return self

    def collections(self) -> list[Collection[Any]]:
        """Returns the collections that hold leaves and wrappers."""
        return []

    def forget(self) -> None:
        """Releases the real tensors that leaves stand for."""


def written_leaves(func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[MetaTensor]:
    """Returns the leaves whose data an operator writes, and not only their metadata."""
    effects = effects_of(func)
    targets = [] if effects.reshapes else [argument_at(written, args, kwargs) for written in effects.writes]
    leaves = [x for target in targets for x in (target if type(target) in (list, tuple) else (target,))]
    return [x for x in leaves if type(x) is MetaTensor]
