"""State dicts taken apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.errors import StateDictError
from subclass_aot.files import unwrap_state_dict
from tests.files.classes import Packed, Pair, Rows, everything


def said(metadata: dict[str, str]) -> Any:
    return json.loads(metadata["subclass_aot"])


def test_names_and_text() -> None:
    weight = Int8Weight.from_float(torch.randn(3, 4)).t()
    tensors, metadata = unwrap_state_dict({"bias": torch.ones(4), "weight": weight})
    assert list(tensors) == ["bias", "weight.codes", "weight.scale"]
    assert said(metadata) == {
        "version": 1,
        "wrappers": {
            "weight": {
                "class": "subclass_aot.tensors.int8_weight:Int8Weight",
                "size": [4, 3],
                "stride": [1, 4],
                "dtype": "float32",
                "fields": {},
                "inner": {
                    "codes": {"size": [4, 3], "dtype": "int8", "stride": [1, 4]},
                    "scale": {"size": [1, 3], "dtype": "float32", "stride": [1, 1]},
                },
            }
        },
        "tied": {},
    }


def test_nested_lists_dicts_and_classes_of_others() -> None:
    value = Pair(everything(parts=[torch.ones(1)] * 2), ForeignTwoTensor(torch.ones(2), torch.zeros(2)))
    tensors, metadata = unwrap_state_dict({"w": value})
    assert list(tensors) == [
        "w.left.codes", "w.left.parts_0", "w.left.table_right", "w.left.table_left", "w.right.a", "w.right.b"
    ]  # fmt: skip
    entry = said(metadata)["wrappers"]["w"]
    assert entry["inner"]["right"]["context"] is None and "fields" not in entry["inner"]["right"]
    assert set(entry["inner"]["left"]["fields"]) == {"bits", "recipe", "modes", "computes_in"}
    assert said(metadata)["tied"] == {"w.left.parts_1": "w.left.parts_0"}


def test_nothing_is_copied() -> None:
    layer = nn.Linear(3, 4)
    layer.weight = nn.Parameter(TwoTensor(torch.ones(4, 3), torch.zeros(4, 3)))
    tensors, _ = unwrap_state_dict(layer)
    for tensor in tensors.values():
        assert not tensor.requires_grad
        tensor.fill_(5)
    weight: Any = layer.weight
    assert weight.a.eq(5).all() and weight.b.eq(5).all() and layer.bias.eq(5).all()


def test_what_requires_grad() -> None:
    weight = nn.Parameter(TwoTensor(torch.ones(2), torch.ones(2)))
    tensors, _ = unwrap_state_dict({"leaf": weight, "computed": weight * 2, "plain": nn.Parameter(torch.ones(2))})
    assert not any(tensor.requires_grad for tensor in tensors.values())
    assert tensors["computed.a"].tolist() == [2, 2]


def test_other_entries_stay_as_they_are() -> None:
    lazy = nn.UninitializedParameter()
    jagged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    entries = {"x": torch.ones(2), "_extra_state": {"a": [1]}, "s": torch.eye(2).to_sparse(), "lazy": lazy, "j": jagged}
    tensors, metadata = unwrap_state_dict(entries)
    assert metadata == {} and all(tensors[name] is value for name, value in entries.items())


def test_on_meta_names_and_text_are_the_same() -> None:
    weight = Int8Weight.from_float(torch.randn(4, 3))
    tensors, metadata = unwrap_state_dict({"weight": weight})
    on_meta, metadata_on_meta = unwrap_state_dict({"weight": weight.to("meta")})
    assert list(on_meta) == list(tensors) and metadata_on_meta == metadata


class Config:
    pass


class Held(WrapperTensor):
    inside: torch.Tensor
    config: Any = None


def jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)


class Looks(ForeignTwoTensor):
    """Names something that is no tensor."""

    def __tensor_flatten__(self) -> Any:
        return ["a", "b", "group"], None

    group = 3


REFUSED: dict[str, tuple[Any, str]] = {
    "a context": (
        lambda: Held(torch.ones(2), Config()),
        r"layer\.w, field config is a Config, which a file cannot hold",
    ),
    "a nested context": (
        lambda: Pair(Held(torch.ones(2), (1, Config())), torch.ones(2)),
        r"layer\.w\.left, field config\[1\] is a Config",
    ),
    "a foreign context": (lambda: Rows(torch.ones(2, 3), [Config()]), r"layer\.w, context\['block'\]\[0\] is a Config"),  # type: ignore[list-item]
    "a view": (
        lambda: Packed(torch.ones(2, 3, dtype=torch.uint8), torch.ones(2, 1))[:, :2],
        r"layer\.w is a view that reads through a Packed.* Save the whole, or layer\.w\.to_plain\(\)",
    ),
    "jagged inside": (
        lambda: Pair(torch.ones(2), jagged()),
        r"layer\.w\.right has the size \(2, .*\), which is not made of numbers",
    ),
    "no tensor": (
        lambda: Looks(torch.ones(2), torch.ones(2)),
        r"layer\.w\.group is a int, which belongs to this process",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_described_is_named(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(StateDictError, match=message):
        unwrap_state_dict({"layer.w": make()})


@pytest.mark.parametrize("order", [("w", "w.a"), ("w.a", "w")])
def test_two_entries_of_one_name(order: tuple[str, str]) -> None:
    entries = {"w": TwoTensor(torch.ones(2), torch.ones(2)), "w.a": torch.zeros(2)}
    with pytest.raises(
        StateDictError, match=r"there are two entries w\.a: .* wrapper w\. Give one of them another name"
    ):
        unwrap_state_dict({name: entries[name] for name in order})
