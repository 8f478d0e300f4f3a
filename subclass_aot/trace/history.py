"""What autograd remembers of a traced tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from subclass_aot import _torch


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keeps from a trace what is for the call that it begins.

    That is hooks on saved tensors (checkpointing, offloading), and the search for the origin of NaN: a traced gradient
    has no values to look at.
    """
    with ExitStack() as stack:
        if _torch.has_saved_tensor_hooks():
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor))
        if torch.is_anomaly_enabled():
            stack.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


def has_history(result: torch.Tensor) -> bool:
    """True if autograd goes through a result.

    Not so for a view that leads nowhere, since a view on the way was made under `no_grad`, nor for one that autograd
    has given up and refuses to speak of.
    """
    try:
        node = result.grad_fn
    except RuntimeError:
        return False
    while result._base is not None and node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node is not None


def gradients_of(
    results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """The gradients of leaves of autograd's graph, None for those that `results` do not depend on.

    The graph stays, for gradients of other kinds. A checkpoint with `use_reentrant=True` wants them to be accumulated,
    and refuses `torch.autograd.grad`.
    """
    if not any(node.name() == "CheckpointFunctionBackward" for node in _nodes(results)):
        return torch.autograd.grad(results, leaves, tangents, retain_graph=True, allow_unused=True)
    for leaf in leaves:
        leaf.grad = None
    torch.autograd.backward(results, tangents, retain_graph=True)
    return [leaf.grad for leaf in leaves]


def foreign_leaf(results: Iterable[torch.Tensor], own: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """A leaf of autograd's graph that `results` depend on and that is not in `own`, or None."""
    known = {id(t) for t in own}
    for node in _nodes(results):
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor) and id(variable) not in known:
            return variable
    return None


def _nodes(results: Iterable[torch.Tensor]) -> Iterator[Any]:
    """What autograd would run to differentiate `results`, each node once."""
    todo: list[Any] = [t.grad_fn for t in results]
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        todo.extend(function for function, _ in node.next_functions)
