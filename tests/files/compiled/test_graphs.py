"""Graphs as JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base.refused import Refused
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.files.compiled.codec import Decoder, Encoder
from subclass_aot.files.compiled.graphs import GraphReader, encode_graph


def forward(fn: Any, *args: Any) -> torch.fx.GraphModule:
    compiled = sa.aot_compile(fn)
    compiled(*args)
    latest = compiled._specializations.latest
    assert latest is not None
    return latest.graphs.forward


def written(graph: torch.fx.GraphModule) -> tuple[Any, list[Any], list[bytes]]:
    encoder, blobs = Encoder(), list[bytes]()
    text = json.loads(json.dumps(encode_graph(graph, encoder, blobs)))
    return text, encoder.specs, blobs


def read(text: Any, specs: list[Any], blobs: list[bytes]) -> torch.fx.GraphModule:
    return GraphReader(Decoder(json.loads(json.dumps(specs))), blobs).read(text, "Forward")


def program(x: torch.Tensor) -> Any:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    return (x @ table.t()).split([1, 1], dim=1), torch.full((2,), 3.0, dtype=torch.float64), x.sum(dim=[0])


def test_a_graph_comes_back() -> None:
    graph = forward(program, torch.rand(3, 2))
    again = read(*written(graph))
    assert again.code == graph.code
    pairs = list(zip(graph.graph.nodes, again.graph.nodes, strict=True))
    assert all(node.name == other.name and descriptor_of(node) == descriptor_of(other) for node, other in pairs)
    assert all(node.meta.get("spec") is other.meta.get("spec") for node, other in pairs)
    x = torch.rand(3, 2)
    assert [r.tolist() for r in again(x)] == [r.tolist() for r in graph(x)]


def test_a_symbolic_graph_without_its_symbols_is_refused() -> None:
    compiled = sa.aot_compile(lambda x: x * x.shape[0], dynamic=True)
    compiled(torch.rand(3))
    latest = compiled._specializations.latest
    assert latest is not None
    with pytest.raises(Refused, match="it is a number that depends on data"):
        encode_graph(latest.graphs.forward, Encoder(), [])


def test_a_function_of_python_is_refused() -> None:
    graph = torch.fx.Graph()
    graph.call_function(print, ())
    graph.output(())
    with pytest.raises(Refused, match="it runs print, which is a function of Python"):
        encode_graph(torch.fx.GraphModule({}, graph), Encoder(), [])
