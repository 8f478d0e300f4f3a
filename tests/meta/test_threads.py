"""Which thread records a graph, and what its tensors stand for elsewhere."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot.errors import TraceError
from subclass_aot.meta import MetaTensor, threads


def _in_another_thread(function: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_a_placeholder_stands_for_a_tensor_in_other_threads() -> None:
    graph, x = fx.Graph(), torch.ones(2)
    node, other = graph.placeholder("x"), graph.placeholder("n")
    threads.note(graph, {node: x, other: 3})
    assert threads.real_input(node) is None and not threads.is_elsewhere(node)
    assert _in_another_thread(lambda: threads.real_input(node)) is x
    assert _in_another_thread(lambda: threads.real_input(other)) is None
    del x
    assert _in_another_thread(lambda: threads.real_input(node)) is None


def test_what_has_no_graph_is_nowhere() -> None:
    assert not threads.is_elsewhere(None) and threads.real_input(None) is None
    assert _in_another_thread(lambda: MetaTensor(torch.ones(2)).grad) is None


def test_a_tensor_that_another_thread_has_made_is_refused() -> None:
    graph: Any = fx.Graph()
    before = torch.ones(2)
    gc.freeze()
    try:
        tensor = torch.ones(2)
        threads.check_made_here(graph, tensor)
        graph.is_read_elsewhere = True
        threads.check_made_here(graph, before)
        with pytest.raises(TraceError, match="another thread has computed"):
            threads.check_made_here(graph, tensor)
    finally:
        gc.unfreeze()
