"""Puts functions of torch back into a graph where Dynamo has written operators of its own.

Note [Dynamo's operators]
~~~~~~~~~~~~~~~~~~~~~~~~~
Dynamo writes an operator for a checkpoint, whose meaning is a mark on nodes: whoever partitions the graph computes
them again, and inductor sees to it that random numbers are the same then. Run, it draws others in backward. A trace
knows what a checkpoint is (`graph/listeners/rng.py`), so the graph calls the function that the program has called.

For an `autograd.Function` there is an operator, too. It keeps what is saved in a variable of a closure, which outlives
the trace; here it is saved as any `autograd.Function` saves.

For `x.data = y` there is `x.set_(y)`, and a function that lowers the version of `x` again. It is an assignment here.

A region that `torch.compiler.nested_compile_region` marks is an operator, too, so that a compiler may compile it once
for all its calls. It means a call of its graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import checkpoint

from subclass_aot.base import _torch


def as_called(gm: fx.GraphModule) -> fx.GraphModule:
    """Returns a graph that calls functions of torch where Dynamo has written an operator of its own.

    Args:
        gm: The graph that Dynamo captured; it stays as it is.
    """
    bodies = {name: child for name, child in gm.named_children() if isinstance(child, fx.GraphModule)}
    changed = {name: made for name, child in bodies.items() if (made := as_called(child)) is not child}
    if not changed and not any(_is_other(node) for node in gm.graph.nodes):
        return gm
    found = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    found.meta.update(gm.meta)
    for name, child in changed.items():
        setattr(found, name, child)
    for node in found.graph.nodes:
        if node.op == "call_function":
            lowered = _lowered(node)
            if lowered is not None:
                node.target = assign_data
                found.graph.erase_node(lowered)
            node.target = _FUNCTIONS.get(node.target, node.target)
    found.recompile()
    return found


def assign_data(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Gives a tensor the memory of another."""
    tensor.data = other
    return tensor


def _is_other(node: fx.Node) -> bool:
    return node.op == "call_function" and (node.target in _FUNCTIONS or _lowered(node) is not None)


def _lowered(node: fx.Node) -> fx.Node | None:
    """Gives the node that lowers the version of a tensor, if another node has just given that the memory of another."""
    if node.target is not torch.Tensor.set_:
        return None
    return next((user for user in node.users if getattr(user.target, "__name__", "") == _LOWERS), None)


_LOWERS = "_lower_version_count_by_1"
"""What Dynamo calls a function of its own, which stands in no module."""


def _checkpoint(body: fx.GraphModule, *args: object, **kwargs: object) -> Any:
    """Calls `torch.utils.checkpoint.checkpoint` as the program did."""
    known, given = _torch.dynamo.checkpoint_keywords(kwargs)
    context_fn = _torch.dynamo.context_of_checkpoint(body)
    if context_fn is not None:
        known["context_fn"] = context_fn
    known["use_reentrant"] = False  # as Dynamo has it, whichever it was
    return checkpoint.checkpoint(body, *args, **known, **given)


class _Call:
    """One call of an `autograd.Function`: its two graphs, and what is between them.

    Attributes:
        backward: A function of gradients and what was saved.
        positions: Which of what is saved was given to `save_for_backward`.
        dirty: Which results are arguments that were written.
        non_differentiable: Which results have no gradient.
        saved: What is saved, from when forward has run until autograd has it.
    """

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any], options: dict[str, Any]) -> None:
        self.forward = forward
        self.backward = backward
        self.positions = frozenset(options.get("saved_for_backward_idx", ()))
        self.dirty: Sequence[int] = options.get("dirty_idx", ())
        self.non_differentiable: Sequence[int] = options.get("non_differentiable_idx", ())
        self.saved: list[Any] = []


class _Applied(torch.autograd.Function):
    """The `autograd.Function` of a program, of the graphs that Dynamo made of it."""

    @staticmethod
    def forward(call: _Call, *args: object) -> Any:
        results, saved = call.forward(*args)
        call.saved = list(saved)
        return results

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        call: _Call = inputs[0]
        results = output if isinstance(output, tuple | list) else [output]
        if call.dirty:
            ctx.mark_dirty(*[results[i] for i in call.dirty])
        if call.non_differentiable:
            ctx.mark_non_differentiable(*[results[i] for i in call.non_differentiable])
        saved, call.saved = call.saved, []
        checked = [i for i, x in enumerate(saved) if i in call.positions and isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*[saved[i] for i in checked])
        ctx.others = [None if i in checked else x for i, x in enumerate(saved)]
        ctx.checked = checked
        ctx.of_program = call.backward

    @staticmethod
    def backward(ctx: Any, *gradients: object) -> Any:
        saved = list(ctx.others)
        for i, x in zip(ctx.checked, ctx.saved_tensors, strict=True):
            saved[i] = x
        given = ctx.of_program(*gradients, *saved)
        return None, *(given if isinstance(given, tuple | list) else (given,))


def _function(forward: Callable[..., Any], backward: Callable[..., Any], *args: object, **options: Any) -> Any:
    """Applies an `autograd.Function` of two graphs."""
    return _Applied.apply(_Call(forward, backward, options), *args)  # type: ignore[no-untyped-call]


def _region(body: fx.GraphModule, name: str, *args: object) -> Any:
    """Calls a region that is to be compiled once, by its graph."""
    return body(*args)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.higher_order.invoke_subgraph: _region,
    torch.ops.higher_order.tag_activation_checkpoint: _checkpoint,
    torch.ops.higher_order.autograd_function_apply: _function,
}
