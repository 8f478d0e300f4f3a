"""Copies without data keep what is shared, and the values of masks and counters."""

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import MetaTensor
from subclass_aot.cost.profiling.without_data import without_data


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
    assert sa.profile(program, mask, some, torch.randn(10**5)).assumed == []
    assert sa.profile(program, mask, some, torch.randn(10**5), device="H100").assumed == []
    with pytest.raises(sa.errors.DataDependentError, match="mask.all"):
        sa.profile(program, some, some, torch.randn(10**5))


def test_a_tensor_that_is_an_attribute_of_a_module_has_no_data_either() -> None:
    layer = nn.Linear(2, 2)
    layer.table = torch.ones(5)
    (other,) = without_data((layer,), torch.device("cuda:0"))
    assert isinstance(other.table, MetaTensor) and other.table.device.type == "cuda"
