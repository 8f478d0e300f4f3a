"""`GraphListener`: a part of a recorder that has one subject."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.meta import MetaTensor


class GraphListener:
    """Is called for operators before they are recorded, as `on_operator` says, and for nodes.

    What is overridden here is called, and nothing else. See `Listeners` for when a listener begins.
    """

    is_of_every_program: ClassVar[bool] = False
    """Whether it begins with the recorder."""
    effects: ClassVar[tuple[str, ...]] = ()
    """It begins with an operator that has one of these: attributes of `Effects`."""
    operators: ClassVar[frozenset[Any]] = frozenset()
    """It begins with one of these, too."""
    goes_on: ClassVar[bool] = False
    """Whether it is called for all operators once it has begun, and not only for those that it begins with."""
    is_shared: ClassVar[bool] = False
    """Whether forks of the recorder note something in what they have in common: in which it begins, too."""

    def wants(self, func: _torch.operators.Operator) -> bool:
        """Returns whether it is called for an operator, when it has begun; a recorder calls this once."""
        if self.goes_on:
            return True
        effects = effects_of(func)
        return any([getattr(effects, name) for name in self.effects]) or bool(self.operators) and func in self.operators

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> bool | None:
        """Is called when an operator has run, before it is recorded; returns True if it is recorded already."""

    def on_node(self, recorder: Tape, node: fx.Node) -> None:
        """Is called for each new node but those that pick one of several results."""

    def on_recorded(
        self,
        recorder: Tape,
        node: fx.Node,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        """Is called when an operator has a node, and its results are known by their nodes."""

    def on_write(self, recorder: Tape, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        """Is called for each leaf that an operator has written, when it is recorded."""

    def on_wrapper_operator(
        self, recorder: Tape, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Is called before an operator on a wrapper goes to the wrapper's class."""

    def on_end(self, recorder: Tape) -> None:
        """Is called when the function has returned, where it was traced."""

    def on_outcome(self, recorder: Tape, outcome: Any, results: list[Any], inputs: Any) -> tuple[Any, list[Any]]:
        """Is called with what the function leaves behind, and with its flattened results; returns both.

        Args:
            recorder: What records.
            outcome: The `Outcome`.
            results: The results.
            inputs: The `TracedInputs`.
        """
        return outcome, results

    def on_computed(self, recorder: Tape, values: Collection[object]) -> None:
        """Is called with what the graph gives, before backward is traced."""

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
