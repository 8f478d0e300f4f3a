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
    """What is compared of a result; sizes that only the call knows are anything."""
    if not isinstance(x, torch.Tensor) or not all(type(n) is int for n in (*x.shape, *x.stride())):
        return None
    return tuple(x.shape), x.stride() if x.numel() else None, x.dtype, x.storage_offset() if x.numel() else None


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
    program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Compiles a program and calls it, forward and backward, and returns what is wrong of nodes of its graphs."""
    wrong: list[str] = []

    def comparing(graph_module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        return lambda *inputs: Comparing(graph_module, wrong).run(*inputs)

    run(aot_compile(program, fw_compiler=comparing), args, kwargs)
    return wrong
