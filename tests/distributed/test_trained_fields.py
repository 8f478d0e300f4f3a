"""Trained fields and tensor parallelism: refused by name, with what to write, before anything is cut."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.utils import parametrize

import subclass_aot as sa
from subclass_aot.errors import ShardingError

pytestmark = [pytest.mark.usefixtures("alone"), pytest.mark.filterwarnings("ignore")]


def trained(fields: tuple[str, ...] = ("left", "right"), bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=bias), nn.ReLU(), nn.Linear(8, 4, bias=bias))
    for layer in (model[0], model[2]):
        weight = sa.tensors.LoraWeight.beside(sa.Int8Weight.from_float(layer.weight), rank=2)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        sa.train_fields(layer, "weight", *fields)
    return model


def by_hand(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
    for key, param in list(module.named_parameters(recurse=False)):
        module.register_parameter(key, nn.Parameter(distribute_tensor(param, mesh, [Replicate()]), param.requires_grad))


CUTS: dict[str, Callable[[nn.Module, DeviceMesh], object]] = {
    "columns": lambda model, mesh: parallelize_module(model, mesh, {"0": ColwiseParallel()}),
    "rows": lambda model, mesh: parallelize_module(model, mesh, {"2": RowwiseParallel()}),
    "both": lambda model, mesh: parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}),
    "a sequence": lambda model, mesh: parallelize_module(model, mesh, {"0": SequenceParallel()}),
    "replicated": distribute_module,
    "by hand": lambda model, mesh: distribute_module(model, mesh, by_hand),
}


@pytest.mark.parametrize("fields", [("left", "right"), ()])
@pytest.mark.parametrize("cut", CUTS)
def test_is_refused_before_anything_is_cut(cut: str, fields: tuple[str, ...]) -> None:
    model, x = copy.deepcopy(trained(fields)), torch.ones(2, 4)
    expected = model(x)
    reason = r"cannot cut the LoraWeight that is `weight` of a Linear.(.|\n)*Instead: torch.*fully_shard \(FSDP2\)"
    with pytest.raises(ShardingError, match=reason):
        CUTS[cut](model, init_device_mesh("cpu", (1,)))
    assert not any(isinstance(p, DTensor) for p in model.parameters())
    assert torch.equal(model(x), expected)


def test_without_a_bias() -> None:
    with pytest.raises(ShardingError, match="`weight` of a Linear"):
        CUTS["columns"](trained(bias=False), init_device_mesh("cpu", (1,)))


def test_one_parameter_again_is_cut() -> None:
    model, mesh = trained(), init_device_mesh("cpu", (1,))
    expected = model(torch.ones(2, 4))
    for layer in (model[0], model[2]):
        parametrize.remove_parametrizations(layer, "weight")
        layer.weight.requires_grad_(False)
    CUTS["both"](model, mesh)
    assert isinstance(model[0].weight, DTensor) and model[0].weight.placements == (Shard(0),)
    torch.testing.assert_close(model(torch.ones(2, 4)), expected)


def test_parametrizations_of_others_are_as_ever() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    model: Any = trained()
    layer = parametrize.register_parametrization(model[0], "bias", Doubled())
    parametrize.remove_parametrizations(layer, "weight")
    layer.register_parameter("more", nn.Parameter(torch.ones(2)))
    assert not hasattr(layer, "_distribute_module_applied")
    with pytest.raises(KeyError, match="parameter name"):
        CUTS["columns"](model, init_device_mesh("cpu", (1,)))
