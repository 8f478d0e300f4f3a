"""Copies without data keep what is shared, and the values of masks and counters."""

import math
import threading

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import MetaTensor
from subclass_aot.cost.profiling.without_data import without_data
from subclass_aot.errors import ProfileError


def test_what_is_shared_stays_shared() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters())
    other, its, (weight,) = without_data((model, optimizer, [model[0].weight]), None)
    assert other is not model and other[0].weight is other[1].weight is weight is its.param_groups[0]["params"][0]
    assert isinstance(weight, MetaTensor) and isinstance(weight, nn.Parameter)


def test_wrappers_stay_wrappers() -> None:
    model = sa.quantize_(nn.Sequential(nn.Linear(4, 4)), sa.Int8Weight)
    (other,) = without_data((model,), None)
    assert type(other[0].weight) is sa.Int8Weight and isinstance(other[0].weight.codes, MetaTensor)


def test_values_of_masks_and_counters_are_known() -> None:
    def program(mask: torch.Tensor, steps: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x[: int(mask.sum())] * steps.item()

    report = sa.profile(program, torch.tensor([True, True, False]), torch.tensor(3.0), torch.randn(3, 8))
    assert report.owners("kind", "end")["output"] == 2 * 8 * 4


def test_long_masks_that_leave_nothing_out_are_known() -> None:
    def program(mask: torch.Tensor, some: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        assert mask.all() and mask.device == x.device
        return x[: int(mask.sum())]

    mask, some = torch.ones(100, 1000, dtype=torch.int64), torch.arange(100_000)
    long = torch.arange(10**7)  # more than is kept
    assert sa.profile(program, mask, some, torch.randn(10**5)).assumed == []
    assert sa.profile(program, mask, some, torch.randn(10**5), device="H100").assumed == []
    with pytest.raises(sa.errors.DataDependentError, match="mask.all"):
        sa.profile(program, long, some, torch.randn(10**5))


def test_a_tensor_that_is_an_attribute_of_a_module_has_no_data_either() -> None:
    layer = nn.Linear(2, 2)
    layer.table = torch.ones(5)
    (other,) = without_data((layer,), torch.device("cuda:0"))
    assert isinstance(other.table, MetaTensor) and other.table.device.type == "cuda"


def test_the_values_of_masks_are_known() -> None:
    """That leave something out, too: a batch of 64 sentences of 1,024 words."""

    def program(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x if mask.all() else x[:, : int(mask.sum(1).max())].clone()

    mask = torch.arange(1024).expand(64, 1024) < 700
    report = sa.profile(program, mask, torch.randn(64, 1024))
    assert report.owners("kind", "end")["output"] == 64 * 700 * 4


def test_what_cannot_be_copied_is_shared() -> None:
    layer = nn.Linear(2, 2)
    layer.lock, layer.math = threading.Lock(), math
    (other,) = without_data((layer,), None)
    assert other.lock is layer.lock and other.math is math
    assert isinstance(sa.to_meta(layer).weight, MetaTensor) and sa.profile(layer, torch.ones(1, 2)).flops()


class Coded(nn.Parameter):
    """A parameter whose codes are an attribute, as those of some libraries that quantize."""

    codes: torch.Tensor


class OfCodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Coded(torch.randn(8, 8), requires_grad=False)
        self.weight.codes = torch.randint(-8, 8, (8, 8)).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.codes


def test_tensors_with_more_data_are_refused_by_name() -> None:
    model, x = nn.Sequential(OfCodes()), torch.randn(4, 8)
    said = r"'0\.weight' is of the class Coded .*: codes\.[\s\S]*Instead: run it on its data"
    with pytest.raises(ProfileError, match=said):
        sa.profile(model, x)
    with sa.profile(model) as report:
        model(x)
    assert report.flops() == 2 * 4 * 8 * 8
