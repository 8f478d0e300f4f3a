"""What metas say about values."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.errors import InnerTensorError
from subclass_aot.kit.flatten import (
    AbsentMeta,
    ContainerMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    create_subclass_meta,
)


class Bag(torch.Tensor):
    """A wrapper that names whatever attributes it was given, tensors or not."""

    @staticmethod
    def __new__(cls, inner: dict[str, Any], context: Any = None) -> Bag:
        bag = torch.Tensor._make_wrapper_subclass(cls, (2,))
        bag.__dict__.update(inner)
        bag.keys, bag.context = list(inner), context
        return bag

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return self.keys, self.context

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Bag:
        return Bag(inner, context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def dense(*size: int) -> torch.Tensor:
    return torch.zeros(size or (2,))


def test_slots_are_counted_depth_first() -> None:
    nested = TwoTensor(TwoTensor(dense(), dense()), TwoTensor(dense(), dense()))
    plain, wrapper, value, last = create_subclass_meta([dense(), nested, "text", TwoTensor(dense(), dense())])
    assert plain == PlainTensorMeta(0, torch.Tensor, torch.float32)
    assert value == PlainTensorMeta(5, str)
    assert isinstance(wrapper, SubclassCreationMeta) and isinstance(last, SubclassCreationMeta)
    assert (wrapper.flat_tensor_start_idx, wrapper.arg_count) == (1, 4)
    assert (last.flat_tensor_start_idx, last.arg_count) == (6, 2)
    inner = wrapper.attrs["b"]
    assert isinstance(inner, SubclassCreationMeta)
    assert (inner.flat_tensor_start_idx, inner.arg_count, list(inner.attrs)) == (3, 2, ["a", "b"])
    assert inner.attrs["b"] == PlainTensorMeta(4, torch.Tensor, torch.float32)


def test_outer_metadata() -> None:
    inner = torch.arange(24, dtype=torch.int32).reshape(4, 6).t()[1:]
    (meta,) = create_subclass_meta([TwoTensor(inner, inner)])
    assert isinstance(meta, SubclassCreationMeta)
    assert (meta.outer_size, meta.outer_stride, meta.storage_offset) == ((5, 4), (1, 6), 1)
    assert (meta.dtype, meta.device, meta.layout) == (torch.int32, torch.device("cpu"), torch.strided)
    assert (meta.cls, meta.original_subclass_type, meta.meta) == (TwoTensor, TwoTensor, None)


def test_metas_hold_no_tensors_and_can_be_pickled() -> None:
    values = [TwoTensor(TwoTensor(dense(), dense()), TwoTensor(dense(), dense())), dense()]
    metas = create_subclass_meta(values)
    assert pickle.loads(pickle.dumps(metas)) == metas
    assert b"_rebuild_tensor" not in pickle.dumps(metas)


def test_metas_are_frozen_and_hashable() -> None:
    (meta,) = create_subclass_meta([Bag({"a": dense()}, context={"a": "dict cannot be hashed"})])
    assert hash(meta) == hash(create_subclass_meta([Bag({"a": dense()}, context={})])[0])
    with pytest.raises(AttributeError):
        meta.arg_count = 3  # type: ignore[misc]


def test_dense_classes_are_one_kind() -> None:
    metas = create_subclass_meta([torch.nn.Parameter(dense()), torch.nn.Buffer(dense())])
    assert [meta.cls for meta in metas] == [torch.nn.Parameter, torch.Tensor]


def test_a_parameter_that_holds_a_wrapper_is_a_wrapper() -> None:
    (meta,) = create_subclass_meta([torch.nn.Parameter(TwoTensor(dense(), dense()))])
    assert meta.cls is TwoTensor


def test_absent_attributes_and_containers() -> None:
    bag = Bag({"parts": [dense(), TwoTensor(dense(), dense())], "none": None, "named": {"k": dense(), 3: (dense(),)}})
    (meta,) = create_subclass_meta([bag])
    assert isinstance(meta, SubclassCreationMeta)
    assert meta.arg_count == 5
    assert meta.attrs["none"] == AbsentMeta()
    parts, named = meta.attrs["parts"], meta.attrs["named"]
    assert isinstance(parts, ContainerMeta) and isinstance(named, ContainerMeta)
    assert (parts.cls, parts.arg_count, list(parts.items)) == (list, 3, [0, 1])
    assert (named.cls, named.arg_count, list(named.items)) == (dict, 2, ["k", 3])


def test_no_inner_tensors_at_all() -> None:
    (meta, after) = create_subclass_meta([Bag({}), dense()])
    assert (meta.arg_count, after.unwrapped_idx) == (0, 0)  # type: ignore[union-attr]


def test_an_inner_tensor_that_requires_grad_is_refused() -> None:
    inner = TwoTensor(dense(), dense())
    inner.a.requires_grad_()
    outer = TwoTensor(dense(), dense())
    outer.b = inner
    with pytest.raises(InnerTensorError) as caught:
        create_subclass_meta([dense(), outer])
    assert str(caught.value).startswith("args[1].b.a: this inner tensor of a TwoTensor requires grad.")
    assert "TwoTensor(inner.detach()).requires_grad_()" in str(caught.value)


def test_an_outer_tensor_may_require_grad() -> None:
    create_subclass_meta([TwoTensor(dense(), dense()).requires_grad_()])


@pytest.mark.parametrize("wrong", [3, "text", {1, 2}, torch.float32])
def test_an_inner_attribute_that_is_no_tensor_is_refused(wrong: object) -> None:
    with pytest.raises(InnerTensorError, match=r"^w\[0\]\.x: Bag\.__tensor_flatten__ names this attribute") as caught:
        create_subclass_meta([Bag({"x": wrong})], where="w")
    assert type(wrong).__name__ in str(caught.value)


def test_an_element_that_is_no_tensor_is_refused_by_its_place() -> None:
    with pytest.raises(InnerTensorError, match=r"^args\[0\]\.x\[1\]: "):
        create_subclass_meta([Bag({"x": [dense(), 1.5]})])


def test_a_missing_inner_attribute_is_refused() -> None:
    bag = Bag({"x": dense()})
    del bag.x
    with pytest.raises(InnerTensorError, match=r"^args\[0\]: Bag\.__tensor_flatten__ names 'x', but this instance"):
        create_subclass_meta([bag])
