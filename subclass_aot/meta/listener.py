"""What may listen to the operators of a stream, and what it may be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from subclass_aot import _torch
from subclass_aot._torch import Operator

if TYPE_CHECKING:  # which tells listeners what happens to it
    from subclass_aot.meta.tensor import MetaTensor


class Listener(_torch.DispatchMode):
    """Hears of every operator on leaves, and may know values.

    A subclass of `Stream` overrides what it wants to hear of (a recorder, a profiler).
    """

    def on_operator(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        """Called after each operator, with the leaves it was given and the ones it made."""

    def on_wrapper_operator(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before an operator on a wrapper goes to the wrapper's class."""

    def materialized(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """Hears that `copy` was computed where eager has a view of `source`: a lazy conjugation or negation."""

    def replaced(self, leaf: MetaTensor, other: torch.Tensor) -> None:
        """Hears that a leaf no listener has a tag on is given the data of another tensor."""

    def value_of(self, leaf: MetaTensor) -> torch.Tensor | None:
        """The real tensor behind `leaf`, where it is known."""
        return None

    def looks(self, func: Operator, args: tuple[Any, ...]) -> bool:
        """Whether an operator that asks for values gets those that `look` gives."""
        return False

    def look(self, leaf: MetaTensor) -> torch.Tensor | None:
        """The values of a leaf in this call, which others then have to have, too."""
        return None

    def known(self, tensor: torch.Tensor, by_looking: bool = True) -> torch.Tensor | None:
        """The values of a tensor, where they are the same at each call.

        Args:
            tensor: The tensor.
            by_looking: Whether the call that is traced may say them, if nothing else does.
        """
        return None

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that a real tensor, which an operator gave, has the same values at each call, and gives it back."""
        return tensor
