"""Which thread records a graph, and what the tensors of the graph stand for in other threads.

While a function is traced, lists, dicts and attributes that it reads hold tensors without data, for all threads.
(Parameters and buffers of modules do not: see `tables/of_thread.py`.) A graph that records notes its thread and, by
the names of their nodes, the tensors of the call. What becomes of an operator of another thread is a subject: see
`subjects/other_threads/use.py`.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot.meta.places import refuse_made_elsewhere


def note(graph: Any, inputs: Mapping[Any, object]) -> None:
    """Notes that this thread records a graph, and what its placeholders stand for; nothing is kept alive."""
    graph.thread = threading.get_ident()
    graph.real_inputs = {node.name: weakref.ref(x) for node, x in inputs.items() if isinstance(x, torch.Tensor)}


def check_made_here(graph: Any, tensor: torch.Tensor) -> None:
    """Checks a real tensor that a trace meets, if another thread has computed with inputs of the trace.

    A function that has a thread of its own compute would get what that computed for this call, at each call. Python's
    collector lists new objects alone in a trace: see `outcome/older_objects.py`.

    Raises:
        TraceError: It is newer than the trace.
    """
    if getattr(graph, "is_read_elsewhere", False) and any(x is tensor for x in gc.get_objects()):
        refuse_made_elsewhere(tensor)


def is_elsewhere(node: Any) -> bool:
    """Returns whether another thread records the graph of a node."""
    thread = getattr(getattr(node, "graph", None), "thread", None)
    return thread is not None and thread != threading.get_ident()


def real_input(node: Any) -> Any:
    """Returns the tensor of a placeholder, if another thread records its graph, or did; else None."""
    if not is_elsewhere(node):
        return None
    found = node.graph.real_inputs.get(node.name)
    return None if found is None else found()
