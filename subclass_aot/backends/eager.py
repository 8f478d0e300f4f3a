"""The compiler "eager": it runs the operators of a graph one by one, with the kernels of eager mode."""

from __future__ import annotations

from typing import Any

from torch import fx

from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.engine.compilers import BACKENDS, Backend, BoxedFunction


def _eager(graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> BoxedFunction:
    """Runs the graph operator by operator."""
    return write_graph(graph)


BACKENDS["eager"] = Backend(_eager, takes_own=True, assumes_nothing=True, one_by_one=True)
