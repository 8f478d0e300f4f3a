"""Files of others, read into what is expected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.errors import StateDictError
from subclass_aot.files import unwrap_state_dict, wrap_state_dict
from tests.files.classes import Packed, Pair, Rows, Written, assert_same, everything


def one_like(value: Any) -> Any:
    """A wrapper of the same kind with other values."""
    names, context = value.__tensor_flatten__()
    inner = {}
    for name in names:
        held = getattr(value, name)
        wrapped = hasattr(held, "__tensor_flatten__")
        inner[name] = one_like(held) if wrapped else torch.zeros_like(held)
    return type(value).__tensor_unflatten__(inner, context, value.size(), value.stride())


VALUES = {
    "declared": Int8Weight.from_float(torch.randn(4, 3)),
    "all fields": everything(codes=torch.rand(3, 2)),
    "a rule for the look": Packed(torch.ones(2, 3, dtype=torch.uint8), torch.rand(2, 1)),
    "nested": Pair(everything(codes=torch.rand(2)), TwoTensor(torch.rand(2), torch.rand(2))),
    "foreign": ForeignTwoTensor(torch.rand(2, 3), torch.rand(2, 3)),
    "foreign, transposed": ForeignTwoTensor(torch.rand(2, 3).t(), torch.rand(2, 3).t()),
    "foreign, another look": Rows(torch.ones(2, 3, dtype=torch.int8), [1, 3]),
    "foreign inside": Pair(ForeignTwoTensor(torch.rand(3), torch.rand(3)), torch.rand(1)),
    "written flatten": Written(torch.rand(3), 5),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_is_expected_says_the_rest(name: str) -> None:
    value = VALUES[name]
    tensors, _ = unwrap_state_dict({"layer.weight": value, "layer.bias": torch.ones(2)})
    plain = {key: tensors[key].contiguous() for key in sorted(tensors)}  # as a file has them
    found = wrap_state_dict(plain, None, like={"layer.weight": one_like(value), "layer.bias": torch.zeros(2)})
    assert set(found) == {"layer.weight", "layer.bias"}
    assert_same(found["layer.weight"], value)


def test_a_module_without_data_says_it_as_well() -> None:
    model = nn.Linear(3, 4, bias=False)
    model.weight = nn.Parameter(Int8Weight.from_float(torch.randn(4, 3)).to("meta"), requires_grad=False)
    theirs = Int8Weight.from_float(torch.randn(4, 3))
    found = wrap_state_dict({"weight.scale": theirs.scale, "weight.codes": theirs.codes}, like=model)
    model.load_state_dict(found, assign=True)
    assert_same(model.weight, theirs)


def test_optional_fields_come_with_the_file() -> None:
    codes, scale, zero = torch.ones(4, 3, dtype=torch.int8), torch.ones(4, 1), torch.full((4, 1), 2.0)
    with_zero = {"w.codes": codes, "w.scale": scale, "w.zero_point": zero}
    found = wrap_state_dict(with_zero, like={"w": Int8Weight(codes, scale)})["w"]
    assert found.zero_point is zero
    found = wrap_state_dict({"w.codes": codes, "w.scale": scale}, like={"w": Int8Weight(codes, scale, zero)})["w"]
    assert found.zero_point is None


def test_another_size_and_precision_is_that_of_the_file() -> None:
    """A class says what it looks like; whether that fits, `load_state_dict` knows."""
    tensors = {"w.codes": torch.ones(2, 5, dtype=torch.int8), "w.scale": torch.ones(2, 1, dtype=torch.bfloat16)}
    found = wrap_state_dict(tensors, like={"w": VALUES["declared"]})["w"]
    assert found.shape == (2, 5) and found.dtype == torch.bfloat16


def test_names_of_earlier_versions() -> None:
    class Now(WrapperTensor, renamed={"q": "codes"}):
        codes: torch.Tensor
        scale: torch.Tensor

    like = {"w": Now(torch.zeros(2), torch.zeros(2))}
    found = wrap_state_dict({"w.q": torch.ones(2), "w.scale": torch.ones(2)}, like=like)["w"]
    assert type(found) is Now and found.codes.tolist() == [1, 1]
    with pytest.raises(StateDictError, match=r"w\.q is torch.int32, and torch.float32 is expected"):
        wrap_state_dict({"w.q": torch.ones(2, dtype=torch.int32), "w.scale": torch.ones(2)}, like=like)


def test_what_the_metadata_says_comes_first() -> None:
    tensors, metadata = unwrap_state_dict({"w": everything(bits=2), "v": TwoTensor(torch.ones(2), torch.ones(2))})
    found = wrap_state_dict(tensors, metadata, like={"w": everything(bits=8), "v": Pair(torch.ones(2), torch.ones(2))})
    assert found["w"].bits == 2 and type(found["v"]) is TwoTensor


def test_a_dense_tensor_stays_dense() -> None:
    dense = torch.ones(4, 3)
    assert wrap_state_dict({"w": dense}, like={"w": VALUES["declared"]}) == {"w": dense}
    assert wrap_state_dict({"other": dense}, like={"w": VALUES["declared"]}) == {"other": dense}


def test_each_entry_has_what_is_below_it_and_no_other_has() -> None:
    value, below = TwoTensor(torch.rand(2), torch.rand(2)), TwoTensor(torch.rand(3), torch.rand(3))
    entries = {"w": value, "w.x": below, "w.y": torch.rand(2), "z": torch.ones(1)}
    tensors, _ = unwrap_state_dict(entries)
    found = wrap_state_dict(tensors, like={**entries, "w": one_like(value), "w.x": one_like(below)})
    assert set(found) == set(entries)
    for name, entry in entries.items():
        assert_same(found[name], entry)


CODES = torch.ones(4, 3, dtype=torch.int8)
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "missing": (
        VALUES["declared"], {"w.codes": CODES},
        r"w is a Int8Weight, and of its inner tensors scale is missing; there are codes",
    ),
    "too many": (
        VALUES["declared"], {"w.codes": CODES, "w.scale": torch.ones(4, 1), "w.more": torch.ones(1)},
        r"w cannot be made of w.codes, w.scale, w.more: .*holds \['more'\], which the class does not declare",
    ),
    "another dtype": (
        VALUES["declared"], {"w.codes": CODES.to(torch.uint8), "w.scale": torch.ones(4, 1)},
        r"w\.codes is torch.uint8, and torch.int8 is expected there: its values would mean something else",
    ),
    "foreign, missing": (
        VALUES["foreign"], {"w.a": torch.ones(2, 3)}, r"w is a TwoTensor, and of its inner tensors b is missing",
    ),
    "foreign, too many": (
        VALUES["foreign"], {f"w.{name}": torch.ones(2, 3) for name in "abc"}, r"w\.c has no place in the TwoTensor",
    ),
    "foreign, another size": (
        VALUES["foreign"], {"w.a": torch.ones(2, 4), "w.b": torch.ones(2, 4)},
        r"w\.a has another size than that of the TwoTensor",
    ),
    "nested": (
        VALUES["nested"], {"w.left.parts_0": torch.ones(1), "w.right.a": torch.ones(2), "w.right.b": torch.ones(2)},
        r"w\.left is a Everything, and of its inner tensors codes is missing; there are parts_0",
    ),
    "a part of a list": (
        VALUES["all fields"], {"w.codes": torch.ones(3, 2), "w.parts_0": torch.ones(1), "w.parts_2": torch.ones(1)},
        r"holds \['parts_2'\], which the class does not declare",
    ),
    "deeper than it is": (
        VALUES["declared"], {"w.codes": CODES, "w.scale": torch.ones(4, 1), "w.codes.a": CODES},
        r"w is a Int8Weight, and w\.codes\.a belongs to none of its inner tensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(name: str) -> None:
    expected, tensors, said = REFUSED[name]
    with pytest.raises(StateDictError, match=said):
        wrap_state_dict(tensors, like={"w": expected})
