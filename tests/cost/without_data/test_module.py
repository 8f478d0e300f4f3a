"""Modules without data."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from benchmarks.demo.vit import ViT
from subclass_aot import Int8Weight, MetaTensor, TwoTensor, aot_compile, to_meta, trace_joint


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("again", self.steps)
        self.nothing = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_parameter("absent", None)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.embed(tokens))
        return scores


def test_tied_parameters_and_buffers_stay_tied() -> None:
    module = Tied()
    twin = to_meta(module)
    assert type(twin) is Tied and twin is not module
    assert twin.head.weight is twin.embed.weight and twin.steps is twin.again
    assert [n for n, _ in twin.named_parameters()] == [n for n, _ in module.named_parameters()]
    for (name, ours), theirs in zip(twin.state_dict().items(), module.state_dict().values(), strict=True):
        assert isinstance(ours, MetaTensor) and not isinstance(theirs, MetaTensor), name
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.device == theirs.device
    assert [p.requires_grad for p in twin.parameters()] == [p.requires_grad for p in module.parameters()]
    twin(MetaTensor(torch.zeros(5, dtype=torch.int64))).sum().backward()
    gradient = twin.embed.weight.grad
    assert isinstance(gradient, MetaTensor) and gradient.shape == (7, 4)
    assert module.embed.weight.grad is None and twin.nothing.grad is None


def test_wrapper_weights_keep_their_class() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    module[0].weight = nn.Parameter(Int8Weight.from_float(module[0].weight), requires_grad=False)
    module[1].weight = nn.Parameter(TwoTensor(torch.ones(2, 3), torch.ones(2, 3)))
    twin = to_meta(module)
    frozen, trained = twin[0].weight, twin[1].weight
    assert isinstance(frozen, Int8Weight) and isinstance(frozen, nn.Parameter) and not frozen.requires_grad
    assert isinstance(frozen.codes, MetaTensor) and frozen.codes.dtype is torch.int8
    assert isinstance(trained, TwoTensor) and trained.requires_grad
    twin(MetaTensor(torch.empty(10**8, 4, device="meta"))).sum().backward()
    assert isinstance(trained.grad, TwoTensor) and isinstance(trained.grad.b, MetaTensor)
    assert isinstance(module[0].weight.codes, torch.Tensor) and not isinstance(module[0].weight.codes, MetaTensor)


def test_a_claimed_device_needs_no_hardware() -> None:
    twin = to_meta(nn.Linear(3, 5), device="cuda:1")
    y = twin(MetaTensor(torch.empty(2, 3), device="cuda:1"))
    assert y.device == torch.device("cuda:1") and twin.weight.device == torch.device("cuda:1")
    y.sum().backward()
    assert twin.weight.grad is not None and twin.weight.grad.device == torch.device("cuda:1")


def test_a_twin_can_be_copied_and_pickled() -> None:
    twin = to_meta(nn.Linear(3, 5))
    for other in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))):
        assert other.weight is not twin.weight and isinstance(other.weight, nn.Parameter)
        assert other(MetaTensor(torch.empty(2, 3))).shape == (2, 5)


def test_a_twin_is_traced_like_the_module_itself() -> None:
    module, x = nn.Linear(3, 5), torch.ones(2, 3)
    ours = trace_joint(to_meta(module), MetaTensor(x)).graph_module.graph
    theirs = trace_joint(module, x).graph_module.graph
    assert [str(n.target) for n in ours.nodes] == [str(n.target) for n in theirs.nodes]
    assert [n.meta.get("spec") for n in ours.nodes] == [n.meta.get("spec") for n in theirs.nodes]


def test_a_vit_with_ten_billion_images() -> None:
    with torch.device("meta"):
        vit = ViT(layers=2)
    images = MetaTensor(torch.rand(int(1e10), 3, 224, 224, device="meta"))
    vit.to("meta")(images).sum().backward()
    for name, parameter in vit.named_parameters():
        assert parameter.grad is not None and parameter.grad.shape == parameter.shape, name
        assert type(parameter.grad) is MetaTensor


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_compiled_module_takes_tensors_without_data(device: str) -> None:
    module = to_meta(nn.Linear(3, 5), device=device)
    y = aot_compile(module)(MetaTensor(torch.empty(2, 3), device=device))
    assert isinstance(y, MetaTensor) and y.shape == (2, 5)
