"""Whether compiled graphs have more nodes than eager mode has kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from subclass_aot import aot_compile
from subclass_aot.engine.passes.partition import default_partition
from tests.meta.nodes import run


class Counting(TorchDispatchMode):
    """Counts the operators that run below autograd, where composite operators have run their parts."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[named(func)] += is_counted(func)
        return func(*args, **kwargs or {})


def named(operator: torch._ops.OpOverload) -> str:
    """Returns the name of an operator; one that writes in place, or into a tensor that is given, is one kernel, too."""
    return operator.overloadpacket.__name__.removesuffix("_").rpartition("drawn__aten__")[2].removesuffix("___default")


FREE = {
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "_unsafe_view",
    "sym_size",
    "detach",
    "lift_fresh",
    "lift_fresh_copy",
}
"""Operators that compute nothing; eager mode makes a tensor of Python numbers without an operator."""
WRITES = {"copy", "slice_scatter", "select_scatter", "as_strided_scatter", "diagonal_scatter"}
"""How a graph without writes has them; a compiler computes them in place."""


def is_counted(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator is no view, and computes."""
    return not operator.is_view and named(operator) not in FREE | WRITES


def nodes(graph: fx.Graph) -> Counter[str]:
    """Counts the operators of a graph."""
    operators = [n.target for n in graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    return Counter(named(op) for op in operators if is_counted(op))


def more_nodes(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Returns the operators that a compiled program has more of than eager mode has, if it has more in all; else ""."""
    graphs: list[fx.Graph] = []

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        graphs[:] = [joint.graph]
        return default_partition(joint, inputs, **options)

    def compiler(graph_module: fx.GraphModule, examples: Any) -> Any:
        if not graphs:
            graphs.append(graph_module.graph)
        return graph_module.forward

    eager = Counting()
    run(program, args, kwargs, lambda: eager)
    run(aot_compile(program, fw_compiler=compiler, partition_fn=partition), args, kwargs)
    ours = nodes(graphs[0]) if graphs else Counter()
    if ours.total() <= eager.count.total():
        return ""
    return f"{dict(ours - eager.count)} in the place of {dict(eager.count - ours)}"
