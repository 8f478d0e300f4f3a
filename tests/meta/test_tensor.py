"""What a `MetaTensor` says of itself."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot import Int8Weight, MetaTensor, TwoTensor
from subclass_aot.errors import DataDependentError, TraceError


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1"])
def test_what_is_there_is_not_moved(device: str) -> None:
    x = MetaTensor(torch.empty(2, 2), device=device)
    for same in (x.to(device), x.to(x), x.to(device, torch.float32), x.to(device=device), x.to(dtype=x.dtype)):
        assert same is x
    assert x.to(device=device, dtype=x.dtype, non_blocking=True) is x and x.to(device, non_blocking=True) is x
    for copied in (x.to(device, copy=True), x.to(device, None, False, True), x.to(device=device, copy=True)):
        assert copied is not x and copied.device == x.device and copied.dtype is x.dtype
    assert x.to(device, torch.float16).dtype is x.to(device=device, dtype=torch.float16).dtype is torch.float16
    assert x.to(torch.empty(1, dtype=torch.float64)).dtype is torch.float64
    images = MetaTensor(torch.empty(2, 3, 4, 5), device=device)
    assert images.to(device, memory_format=torch.channels_last).stride() == (60, 1, 15, 3)
    for moved in (
        images.to(None, None, False, memory_format=torch.channels_last),
        images.type_as(x),
        x.type_as(images),
    ):
        assert moved.device == x.device  # as `Module.to` calls it
    with sa.meta(device):
        layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        assert layer.weight.device == x.device and layer.weight.stride() == (27, 1, 9, 3)


def test_devices_without_hardware() -> None:
    x = MetaTensor(torch.randn(3, 4), device="cuda").requires_grad_()
    weight = MetaTensor.like(torch.nn.Parameter(torch.randn(4, 5)), device="cuda:0")
    y = F.gelu(F.layer_norm(x @ weight, (5,))).sum()
    assert y.device.type == "cuda" and x.new_zeros(2).device.type == "cuda"
    assert torch.zeros_like(x).device.type == "cuda" and (x * torch.tensor(2.0)).device.type == "cuda"
    assert x.to("cpu").device == torch.device("cpu")
    y.backward()
    for t in (x, weight):
        assert t.grad is not None and t.grad.shape == t.shape and t.grad.device.type == "cuda"
    assert "cuda" in repr(x)


def test_a_wrapper_cannot_claim_another_device() -> None:
    if torch.cuda.is_available():
        assert MetaTensor.like(TwoTensor(torch.zeros(2), torch.zeros(2)), device="cuda").device.type == "cuda"
    else:
        with pytest.raises(TraceError, match="A TwoTensor cannot claim cuda: there is no such device here"):
            MetaTensor.like(TwoTensor(torch.zeros(2), torch.zeros(2)), device="cuda")


def test_like_keeps_wrappers_and_requires_grad() -> None:
    nested = TwoTensor(TwoTensor(torch.zeros(2, 3), torch.zeros(2, 3)), torch.zeros(2, 3)).requires_grad_()
    twin = MetaTensor.like(nested)
    assert type(twin) is TwoTensor and type(twin.a) is TwoTensor and type(twin.a.b) is MetaTensor
    assert twin.requires_grad and twin.is_leaf
    (twin * 2).sum().backward()
    assert type(twin.grad.a.a) is MetaTensor
    weight = MetaTensor.like(Int8Weight.from_float(torch.randn(5, 3)))
    assert weight.zero_point is None and weight.codes.dtype is torch.int8
    assert type(F.linear(MetaTensor(torch.empty(10**9, 3, device="meta")), weight)) is MetaTensor


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("grad", [False, True])
def test_copies(twin: Any, grad: bool) -> None:
    x = MetaTensor(torch.zeros(4, 6)[1:, ::2].t(), device="cuda").requires_grad_(grad)
    parameter = torch.nn.Parameter(MetaTensor(torch.zeros(3)), requires_grad=grad)
    y, again, z = twin([x, x, parameter])
    assert y is again and y is not x and type(y) is MetaTensor
    assert y.meta_spec is x.meta_spec and y.device == x.device and y.requires_grad is grad
    assert isinstance(z, torch.nn.Parameter) and z.requires_grad is grad


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.item(),
        lambda x: float(x),
        lambda x: bool(x > 0),
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: torch.equal(x, x),
        lambda x: x[None][x[None] > 0],
    ],
)
def test_values_are_not_there(ask: Any) -> None:
    with pytest.raises(DataDependentError, match=r"asks for values, and a traced tensor has none\.\n  Your line:  /"):
        ask(MetaTensor(torch.ones(())))


def test_repr() -> None:
    leaf = MetaTensor(torch.zeros(2, 3)).requires_grad_()
    assert repr(leaf) == "MetaTensor([2, 3], float32, cpu, requires_grad=True)"


def test_sparse_and_lazy_tensors_are_refused() -> None:
    for tensor in (torch.eye(2).to_sparse(), torch.zeros(2, dtype=torch.complex64).conj()):
        with pytest.raises(TraceError, match="cannot be described by a Spec"):
            MetaTensor(tensor)


def test_mixed_with_real_tensors_and_batches_that_no_machine_holds() -> None:
    x = MetaTensor(torch.empty(10**10, 3, device="meta"))
    y = torch.cat([x, x]) * torch.ones(3) + torch.arange(3)
    assert type(y) is MetaTensor and y.shape == (2 * 10**10, 3)
    layer = torch.nn.Linear(3, 4, device="meta")
    layer(x).square().mean().backward()
    assert type(layer.weight.grad) is MetaTensor and layer.weight.grad.shape == (4, 3)
