"""LSTMs in training: the operator of oneDNN that eager runs, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot
from subclass_aot import aot_compile

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="eager has no such operator here")

LAYERS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "dropout": {"num_layers": 2, "dropout": 0.5},
    "bfloat16": {"dtype": torch.bfloat16, "bidirectional": True},
}
FUSED = torch.ops.subclass_aot.mkldnn_rnn_layer_for_training.default


def trained(fn: Any, layer: nn.LSTM, *inputs: Any) -> list[torch.Tensor]:
    """The result, the last state, and gradients of everything."""
    torch.manual_seed(0)
    inputs = tuple([x.detach().clone().requires_grad_() for x in inputs])
    layer.zero_grad()
    out, (h, c) = fn(*inputs[:1], *[inputs[1:]] * (len(inputs) > 1))
    (out.float().square().sum() + 2 * h.float().sum() + c.float().sin().sum()).backward()
    return [out, h, c, *(p.grad for p in layer.parameters()), *(x.grad for x in inputs)]  # type: ignore[misc]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_training_an_lstm_is_bitwise_what_eager_computes(options: dict[str, Any], training: bool) -> None:
    layer = nn.LSTM(3, 4, **options).train(training)
    compiled = aot_compile(layer)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    dtype = options.get("dtype", torch.float32)
    x, *state = torch.randn(5, 5, 3, dtype=dtype), *(torch.randn(count, 5, 4, dtype=dtype) for _ in range(2))
    assert_same(trained(compiled, layer, x), trained(layer, layer, x))
    assert_same(trained(compiled, layer, x, *state), trained(layer, layer, x, *state))


def test_the_fused_operators_are_in_the_graphs() -> None:
    layer, graphs = nn.LSTM(3, 4), []

    def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    trained(aot_compile(layer, fw_compiler=keep), layer, torch.randn(5, 2, 3))
    forward, backward = ([n.target for n in graph.graph.nodes] for graph in graphs)
    assert forward.count(FUSED) == 1
    assert backward.count(torch.ops.aten.mkldnn_rnn_layer_backward.default) == 1


def test_partitioners_may_compute_the_layer_again() -> None:
    from functorch.compile import min_cut_rematerialization_partition

    layer, x = nn.LSTM(3, 4, num_layers=2), torch.randn(5, 2, 3)
    compiled = aot_compile(layer, partition_fn=min_cut_rematerialization_partition)
    assert_same(trained(compiled, layer, x), trained(layer, layer, x))


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_lengths_and_batches_that_change_are_compiled_once(options: dict[str, Any], dynamic: bool | None) -> None:
    layer = nn.LSTM(3, 4, **options)
    compiled, dtype = aot_compile(layer, dynamic=dynamic), options.get("dtype", torch.float32)
    for length, batch in ((4, 5), (6, 7), (9, 2), (2, 11), (5, 5)):
        x = torch.randn(length, batch, 3, dtype=dtype)
        assert_same(trained(compiled, layer, x), trained(layer, layer, x))
    assert len(compiled.recompiles) == (0 if dynamic else 1)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("options", [{"proj_size": 2}, {"dtype": torch.float64}], ids=["projections", "float64"])
def test_other_networks_are_those_of_torch(options: dict[str, Any]) -> None:
    layer = nn.LSTM(3, 4, **options)
    compiled, dtype = aot_compile(layer, dynamic=True), options.get("dtype", torch.float32)
    for batch in (2, 3, 5):
        x = torch.randn(5, batch, 3, dtype=dtype)
        for a, b in zip(trained(compiled, layer, x), trained(layer, layer, x), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
def test_without_onednn_there_is_none_of_its_operators() -> None:
    layer, x, found = nn.LSTM(3, 4), torch.randn(5, 2, 3), set[str]()

    def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.update(str(n.target) for n in graph.graph.nodes)
        return graph

    with torch.backends.mkldnn.flags(enabled=False):
        compiled = aot_compile(layer, fw_compiler=keep, dynamic=True)
        for a, b in zip(trained(compiled, layer, x), trained(layer, layer, x), strict=True):
            torch.testing.assert_close(a, b)
    assert found and not any("mkldnn" in each for each in found)


def test_a_tagger_of_words_trains_as_in_eager_mode() -> None:
    """Lengths change with each batch; the result is read by a loss, and no gradient of the input is wanted."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm = nn.Embedding(20, 6), nn.LSTM(6, 5, bidirectional=True, batch_first=True)
            self.tags = nn.Linear(10, 3)

        def forward(self, words: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.tags(self.lstm(self.words(words))[0]).flatten(0, 1), tags.flatten())

    net = Tagger()
    compiled = aot_compile(net)
    for length in (5, 7, 12, 3, 8):
        words, tags = torch.randint(20, (4, length)), torch.randint(3, (4, length))
        found = []
        for each in (net, compiled):
            net.zero_grad()
            loss = each(words, tags)
            loss.backward()
            found.append([loss.detach(), *(p.grad for p in net.parameters())])
        assert_same(*found)
    assert len(compiled.recompiles) == 1


def test_a_decomposition_of_the_user_goes_first() -> None:
    layer, seen = nn.LSTM(3, 4), []

    def other(x: Any, *args: Any) -> Any:
        seen.append(x.shape)
        return x.new_ones(5, 2, 4), x.new_ones(2, 4), x.new_ones(2, 4), x.new_ones(0)

    table = {torch.ops.aten.mkldnn_rnn_layer.default: other}
    out, _ = aot_compile(layer, decompositions=table)(torch.randn(5, 2, 3))
    assert seen and bool((out == 1).all())


def test_without_gradients_the_operator_stays_that_of_torch() -> None:
    with torch.no_grad():
        graph = subclass_aot.trace_joint(nn.LSTM(3, 4), torch.randn(5, 2, 3)).graph_module.graph
    assert FUSED not in [n.target for n in graph.nodes]
