"""Convolutions of `torch_geometric` on random graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    TransformerConv,
    global_mean_pool,
)

from subclass_aot.errors import DataDependentError
from tests.models.checks import check_inference, check_training, check_without_data

CONVOLUTIONS: dict[str, Any] = {
    "SAGE": SAGEConv,
    "GIN": lambda i, o: GINConv(nn.Linear(i, o)),
    "Transformer": TransformerConv,
    "Graph": GraphConv,
    "GCN, normalized before": lambda i, o: GCNConv(i, o, normalize=False),
    "GAT without loops": lambda i, o: GATConv(i, o, heads=2, concat=False, add_self_loops=False),
    "GATv2 without loops": lambda i, o: GATv2Conv(i, o, add_self_loops=False),
}
LOOKING: dict[str, Any] = {"GCN": GCNConv, "GAT": GATConv, "GATv2": GATv2Conv, "Cheb": lambda i, o: ChebConv(i, o, K=2)}
"""They look for loops in the graph, `edge_index[:, mask]`, so without data nobody knows how many edges there are."""
ALL = CONVOLUTIONS | LOOKING


class Net(nn.Module):
    def __init__(self, convolution: Any) -> None:
        super().__init__()
        self.first, self.second = convolution(6, 8), convolution(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = self.first(x, edge_index).relu()
        return global_mean_pool(self.second(hidden, edge_index), batch, size=int(len(x) // 5))


def graphs(number: int) -> dict[str, Any]:
    """Five nodes and twenty edges each."""
    nodes = 5 * number
    edges = torch.randint(0, nodes, (2, 4 * nodes))
    return {"x": torch.randn(nodes, 6), "edge_index": edges, "batch": torch.arange(nodes) // 5}


@pytest.mark.parametrize("name", ALL)
def test_training(name: str) -> None:
    check_training(Net(ALL[name]), graphs)


@pytest.mark.parametrize("name", ALL)
def test_inference(name: str) -> None:
    check_inference(Net(ALL[name]), graphs)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("compiled", [False, True])
def test_without_data(name: str, compiled: bool) -> None:
    check_without_data(Net(CONVOLUTIONS[name]), graphs, compiled)


@pytest.mark.parametrize("name", LOOKING)
def test_refused_without_data(name: str) -> None:
    with pytest.raises(DataDependentError, match=r"edge_index = edge_index\[:, mask\]"):
        check_without_data(Net(LOOKING[name]), graphs)
