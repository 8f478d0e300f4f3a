"""Functions of torch in whose place others are called in a trace, with the recorder as first argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subclass_aot.engine.graph.listeners.places import PLACES
from subclass_aot.engine.graph.replaced.fronts import FRONTS
from subclass_aot.engine.graph.replaced.gradients import GRADIENTS
from subclass_aot.engine.graph.replaced.higher_order import HIGHER_ORDER
from subclass_aot.engine.graph.replaced.in_place_views import IN_PLACE_VIEWS
from subclass_aot.engine.graph.replaced.lost_out import LOST_OUT
from subclass_aot.engine.graph.replaced.resolved import RESOLVED
from subclass_aot.engine.graph.replaced.symbolic_indices import SYMBOLIC_INDICES
from subclass_aot.engine.graph.replaced.tensors_of_numbers import TENSORS_OF_NUMBERS
from subclass_aot.engine.graph.replaced.watched import WATCHED

REPLACED: dict[Any, Callable[..., Any]] = {
    **HIGHER_ORDER, **IN_PLACE_VIEWS, **LOST_OUT, **PLACES, **RESOLVED, **FRONTS, **GRADIENTS, **SYMBOLIC_INDICES,
    **TENSORS_OF_NUMBERS, **WATCHED,
}  # fmt: skip
"""What is called, by what the program calls."""
