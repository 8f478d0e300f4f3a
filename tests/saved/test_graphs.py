"""Graphs as JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.descriptors import descriptor_of
from subclass_aot.saved.codec import Decoder, Encoder
from subclass_aot.saved.graphs import GraphReader, encode_graph
from subclass_aot.saved.refused import Refused


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


def read(text: Any, specs: list[Any], blobs: list[bytes], check: bool = True) -> torch.fx.GraphModule:
    return GraphReader(Decoder(json.loads(json.dumps(specs)), False), blobs, check).read(text, "Forward")


def program(x: torch.Tensor) -> Any:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    return (x @ table.t()).split([1, 1], dim=1), torch.full((2,), 3.0, dtype=torch.float64), x.sum(dim=[0])


@pytest.mark.parametrize("check", [True, False])
def test_a_graph_comes_back(check: bool) -> None:
    graph = forward(program, torch.rand(3, 2))
    again = read(*written(graph), check=check)
    assert again.code == graph.code
    pairs = list(zip(graph.graph.nodes, again.graph.nodes, strict=True))
    assert all(node.name == other.name and descriptor_of(node) == descriptor_of(other) for node, other in pairs)
    assert all(node.meta.get("spec") is other.meta.get("spec") for node, other in pairs)
    x = torch.rand(3, 2)
    assert [r.tolist() for r in again(x)] == [r.tolist() for r in graph(x)]


def _node(text: Any, op: str) -> Any:
    return next(node for node in text[2] if node[0] == op)


def test_data_of_another_size_are_refused() -> None:
    text, specs, blobs = written(forward(program, torch.rand(3, 2)))
    with pytest.raises(Refused, match="have another size"):
        read(text, specs, [blob[:-1] for blob in blobs])
    _node(text, "get_attr")[2][2] = 7
    with pytest.raises(Refused, match="there are no data 7"):
        read(text, specs, blobs)


@pytest.mark.parametrize(
    ("op", "at", "value"),
    [
        ("call_function", 3, ["tuple", ["NodeAt", 99]]), ("call_function", 3, ["tuple"]),
        ("call_function", 0, "call_module"),
        ("call_function", 2, "aten.no_such.default"), ("placeholder", 1, "a b"), ("placeholder", 2, []),
        ("output", 3, ["tuple", ["tuple"]]), ("output", 2, []), ("call_function", 5, ["spec", 99]),
        ("call_function", 4, ["dict", ["a b", 1]]),
    ],
)  # fmt: skip
def test_what_is_no_graph_is_refused(op: str, at: int, value: Any) -> None:
    text, specs, blobs = written(forward(program, torch.rand(3, 2)))
    _node(text, op)[at] = value
    with pytest.raises(Refused):
        read(text, specs, blobs)


def test_sizes_that_no_machine_has_are_refused() -> None:
    text, specs, blobs = written(forward(program, torch.rand(3, 2)))
    node = next(node for node in text[2] if node[2] == "aten.full.default")
    node[3][1] = ["list", 1 << 45]
    with pytest.raises(Refused, match="and the operator gives"):
        read(text, specs, blobs)


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
