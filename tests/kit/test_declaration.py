"""What the class statement of a wrapper class declares, as others read it."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import WrapperTensor
from subclass_aot.kit.declaration import MISSING, Declaration, Field, attributes_of


class Static(WrapperTensor, fallback="each"):
    codes: torch.Tensor
    bits: int = 8


class Several(WrapperTensor, fallback="each"):
    codes: torch.Tensor
    parts: list[torch.Tensor]
    bits: int = 8
    part: torch.Tensor | None = None


def declaration_of(cls: type) -> Declaration:
    found = Declaration.of(cls)
    assert found is not None
    return found


@pytest.mark.parametrize("cls", [torch.Tensor, ForeignTensor, int])
def test_other_classes_have_none(cls: type) -> None:
    assert Declaration.of(cls) is None and attributes_of(cls) is None


def test_fields_in_order() -> None:
    fields = declaration_of(Several).fields
    assert [(field.name, field.kind) for field in fields.values()] == [
        ("codes", "tensor"), ("parts", "sequence"), ("bits", "context"), ("part", "optional")
    ]  # fmt: skip
    assert [fields[name].default for name in ("codes", "bits", "part")] == [MISSING, 8, None]


def test_whose_inner_tensors_have_the_same_names_each_time() -> None:
    """The oracle is what instances say."""
    assert declaration_of(Static).is_static and not declaration_of(Several).is_static
    x = torch.ones(2)
    assert Static(x).__tensor_flatten__()[0] == Static(x, 4).__tensor_flatten__()[0]
    assert Several(x, [x]).__tensor_flatten__()[0] != Several(x, []).__tensor_flatten__()[0]


def test_the_field_of_each_inner_tensor() -> None:
    x = torch.ones(2)
    names, _ = Several(x, [x, x], part=x).__tensor_flatten__()
    assert [(name, declaration_of(Several).field_of(name)) for name in names] == [
        ("codes", "codes"), ("parts_0", "parts"), ("parts_1", "parts"), ("part", "part")
    ]  # fmt: skip


def test_attributes_follow_from_the_context() -> None:
    """The oracle is the instance: it has those attributes."""
    value = Several(torch.ones(2), [torch.ones(2)], 4)
    names, context = value.__tensor_flatten__()
    attributes = attributes_of(Several)
    assert attributes is not None
    found = attributes(tuple(names), context)
    assert set(declaration_of(Several).attributes) <= set(found) and found["bits"] == 4
    assert Field("parts", "sequence", MISSING, None).layout_attribute in found
    assert all(getattr(value, name) == content for name, content in found.items())


def test_what_a_file_of_an_earlier_version_names() -> None:
    class Later(WrapperTensor, renamed={"q": "codes", "of": "parts", "wide": "bits"}):
        codes: torch.Tensor
        parts: list[torch.Tensor]
        bits: int = 8
        of_all: int = 0

    names = ["q", "codes", "of_0", "of_11", "_of_layout", "of_all", "wide", "wide_0", "other"]
    assert [declaration_of(Later).named_now(name) for name in names] == [
        "codes", "codes", "parts_0", "parts_11", "_parts_layout", "of_all", "bits", "wide_0", "other"
    ]  # fmt: skip
