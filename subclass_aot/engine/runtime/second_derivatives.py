"""Second derivatives, as the generated code of a signature has them: the subject of that name makes what it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from subclass_aot.base.later import Later


class Again(Protocol):
    """The part of a signature beside its compiled backward by which gradients can be differentiated."""

    def keep(self, values: list[torch.Tensor]) -> torch.Tensor:
        """Keeps the inputs as they are before the call; what it returns is an input of the compiled `Function`."""

    def differentiable(self, backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        """Returns a backward that autograd can follow where that is asked for."""


again: Later[..., Again] = Later("second_derivatives")
"""Makes it of a signature, its graphs, its call, what compiles another function, and whether draws are repeated."""
