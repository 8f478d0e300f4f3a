"""State dicts of dense and of quantized models, loaded into each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.errors import OperatorRuleError, StateDictError
from subclass_aot.files import dense_state_dict
from tests.files.classes import Packed


def linear(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def quantized(kind: str = "Int8Weight") -> nn.Linear:
    plain = torch.randn(4, 6)
    if kind == "Int8Weight":
        return linear(Int8Weight.from_float(plain))
    return linear(Packed(torch.zeros(4, 3, dtype=torch.uint8), torch.ones(4, 1)).from_plain(plain))


@pytest.mark.parametrize("kind", ["Int8Weight", "Packed"])
def test_a_quantized_model_into_a_dense_one(kind: str) -> None:
    model, dense = quantized(kind), nn.Linear(6, 4)
    x = torch.randn(2, 6)
    found = dense_state_dict(model)
    assert type(found["weight"]) is torch.Tensor and not found["weight"].requires_grad
    dense.load_state_dict(found)
    torch.testing.assert_close(dense(x), model(x))
    direct = nn.Linear(6, 4)
    direct.load_state_dict(model.state_dict())  # `copy_` does it, too
    assert direct.weight.equal(dense.weight) and type(direct.weight) is nn.Parameter
    direct.load_state_dict(found, assign=True)
    assert type(direct.weight) is nn.Parameter and direct.weight.equal(dense.weight)


@pytest.mark.parametrize("kind", ["Int8Weight", "Packed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_dense_model_into_a_quantized_one(kind: str, dtype: torch.dtype) -> None:
    model, dense = quantized(kind), nn.Linear(6, 4, dtype=dtype)
    weight: Any = model.weight
    report = model.load_state_dict(dense.state_dict())
    assert not report.missing_keys and not report.unexpected_keys
    assert model.weight is weight and weight.dtype == torch.float32
    assert weight.codes.dtype == (torch.int8 if kind == "Int8Weight" else torch.uint8)
    step = dense.weight.float().abs().amax(1, keepdim=True) / (127 if kind == "Int8Weight" else 7)
    assert ((weight.to_plain() - dense.weight.float()).abs() <= 0.51 * step).all()
    assert model.bias.equal(dense.bias.float())


@pytest.mark.parametrize("size", [(4, 5), (1, 6), (6,), (24,)])
def test_another_size_is_refused(size: tuple[int, ...]) -> None:
    model = quantized()
    before = model.weight.to_plain()
    with pytest.raises(RuntimeError, match=r"size mismatch for weight: copying a param with shape"):
        model.load_state_dict({"weight": torch.ones(size), "bias": torch.ones(4)})
    assert model.weight.to_plain().equal(before)


def test_strict_says_what_is_missing() -> None:
    model = quantized()
    with pytest.raises(
        RuntimeError, match=r'Missing key\(s\) in state_dict: "weight".*\n.*"weight.codes", "weight.scale"'
    ):
        model.load_state_dict(
            {"weight.codes": model.weight.codes, "weight.scale": model.weight.scale, "bias": model.bias}
        )


def test_assign_puts_there_what_was_saved() -> None:
    model, dense = quantized(), nn.Linear(6, 4)
    model.load_state_dict(dense.state_dict(), assign=True)
    assert type(model.weight) is nn.Parameter and not model.weight.requires_grad
    assert model.weight.data_ptr() == dense.weight.data_ptr()
    model.load_state_dict(quantized().state_dict(), assign=True)
    assert type(model.weight) is Int8Weight


class NoWayBack(WrapperTensor):
    inside: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.inside * 2


def test_a_class_without_from_plain_takes_nothing_dense() -> None:
    model = linear(NoWayBack(torch.ones(4, 6)))
    with pytest.raises(RuntimeError, match="has no method from_plain"):
        model.load_state_dict(nn.Linear(6, 4).state_dict())
    with pytest.raises(OperatorRuleError, match="has no method from_plain"), torch.no_grad():
        model.weight.copy_(torch.ones(4, 6))


def test_what_was_tied_is_one_tensor() -> None:
    layer = quantized()
    model = nn.ModuleDict({"first": layer, "second": nn.Linear(6, 4)})
    model["second"].weight = layer.weight  # type: ignore[assignment]
    found = dense_state_dict(model)
    assert found["first.weight"] is found["second.weight"]
    assert found["first.bias"] is not found["second.bias"]
    codes, scale = layer.weight.codes, layer.weight.scale
    others = {
        "same": layer.weight,
        "zero": Int8Weight(codes, scale, torch.ones(4, 1)),
        "scale": Int8Weight(codes, scale.clone()),
    }
    assert len({id(value) for value in dense_state_dict(others).values()}) == 3


class Shifted(WrapperTensor):
    inside: torch.Tensor
    by: int

    def to_plain(self) -> torch.Tensor:
        return self.inside + self.by


def test_the_same_memory_may_be_read_in_two_ways() -> None:
    x = torch.zeros(2)
    found = dense_state_dict({"one": Shifted(x, 1), "two": Shifted(x, 2), "again": Shifted(x, 1)})
    assert found["one"].tolist() == [1, 1] and found["two"].tolist() == [2, 2] and found["again"] is found["one"]


def test_what_is_no_wrapper_stays() -> None:
    entries = {"weight": torch.ones(2), "extra": {"a": 1}, "sparse": torch.eye(2).to_sparse()}
    found = dense_state_dict(entries)
    assert list(found) == list(entries) and all(found[name] is value for name, value in entries.items())


def test_a_wrapper_of_wrappers() -> None:
    inside = Int8Weight.from_float(torch.randn(2, 3))

    class Alias(WrapperTensor):
        inside: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.inside

    assert dense_state_dict({"weight": Alias(inside)})["weight"].equal(inside.to_plain())


@pytest.mark.parametrize("cls", [TwoTensor, ForeignTwoTensor])
def test_a_wrapper_that_stands_for_nothing(cls: Any) -> None:
    with pytest.raises(StateDictError, match=r"layer\.weight is a TwoTensor, which has no to_plain"):
        dense_state_dict({"layer.weight": cls(torch.ones(2), torch.ones(2))})
