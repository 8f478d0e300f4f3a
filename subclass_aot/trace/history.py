"""What autograd remembers of a traced tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from subclass_aot import _torch


@contextmanager
def without_hooks() -> Iterator[None]:
    """Hooks on saved tensors (checkpointing, offloading) are for a call, not for the trace that it begins with."""
    if not _torch.has_saved_tensor_hooks():
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
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


def foreign_leaf(results: Iterable[torch.Tensor], own: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """A leaf of autograd's graph that `results` depend on and that is not in `own`, or None."""
    known = {id(t) for t in own}
    todo = [t.grad_fn for t in results]
    seen = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor) and id(variable) not in known:
            return variable
        todo.extend(function for function, _ in node.next_functions)
    return None
