"""Which nodes of compiled graphs give something else than was told of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import optree
import torch
from torch import fx

from subclass_aot import aot_compile
from subclass_aot.base._torch.symbolic import example_of


class Comparing(fx.Interpreter):
    """Runs a graph and compares what its nodes give with their `meta["val"]`, strides of dims of one place, too."""

    def __init__(self, graph_module: fx.GraphModule, wrong: list[str]) -> None:
        super().__init__(graph_module)
        self.wrong = wrong

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function":
            pairs = zip(leaves(result), leaves(n.meta.get("val")), strict=True)
            for real, told in ((facts(x), facts(y)) for x, y in pairs if isinstance(x, torch.Tensor)):
                if told is not None and real != told:
                    operands = [facts(self.env[x]) for x in n.all_input_nodes if isinstance(self.env[x], torch.Tensor)]
                    self.wrong.append(f"{n.target} of {operands}: {told}, and the kernel gives {real}")
        return result


def leaves(tree: Any) -> list[Any]:
    return optree.tree_leaves(tree, none_is_leaf=True)


def facts(x: Any) -> Any:
    """What is compared of a result: symbols have their values in the example; sizes that data decide are anything."""
    if not isinstance(x, torch.Tensor):
        return None
    try:
        size, stride, (offset,) = (list(map(example_of, each)) for each in (x.shape, x.stride(), [x.storage_offset()]))
    except TypeError:
        return None
    is_empty = 0 in size
    return size, None if is_empty else stride, x.dtype, None if is_empty else offset


def run(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    during: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Calls a program, and goes backward, both within a context."""
    with during():
        made = program(*args, **kwargs)
    results = [x for x in leaves(made) if isinstance(x, torch.Tensor) and x.requires_grad]
    wanted = [x for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    if results and wanted:
        tangents = [torch.ones_like(x) for x in results]
        with during():
            torch.autograd.grad(results, wanted, tangents, allow_unused=True)


def runs(program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({})) -> bool:
    """Whether eager does not refuse a program, as one of kernels that do not know a layout."""
    try:
        run(program, args, kwargs)
    except (RuntimeError, ValueError, NotImplementedError, IndexError, AssertionError):
        return False
    return True


def wrong_nodes(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    dynamic: bool = False,
) -> list[str]:
    """Compiles a program and calls it, forward and backward, and returns what is wrong of nodes of its graphs.

    Args:
        program: It.
        args: Its arguments.
        kwargs: Its named arguments.
        dynamic: Whether sizes are symbols.
    """
    wrong: list[str] = []

    def comparing(graph_module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        return lambda *inputs: Comparing(graph_module, wrong).run(*inputs)

    run(aot_compile(program, fw_compiler=comparing, dynamic=dynamic or None), args, kwargs)
    return wrong
