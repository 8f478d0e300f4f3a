"""A description of leaves: counts, symbols, and the names that AOTAutograd has for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.kit.flatten import PlainTensorMeta, SubclassCreationMeta, create_subclass_meta
from subclass_aot.kit.flatten.metas import NESTED_INT, SYMBOLIC, AbsentMeta, OpaqueMeta, frozen_sizes
from subclass_aot.meta.symbols import Symbols


def meta_of(tensor: Any) -> Any:
    return create_subclass_meta([tensor])[0]


@pytest.mark.parametrize(
    ("value", "is_tensor"), [(torch.ones(2), True), (torch.nn.Parameter(torch.ones(2)), True), (3, False), ("a", False)]
)
def test_what_is_one_leaf(value: Any, is_tensor: bool) -> None:
    meta = meta_of(value)
    assert (meta.arg_count, meta.is_tensor, meta.dtype) == (1, is_tensor, torch.float32 if is_tensor else None)
    assert issubclass(type(value), meta.cls)


def test_what_takes_no_slot_and_what_takes_one() -> None:
    assert (AbsentMeta().arg_count, OpaqueMeta(3).arg_count) == (0, 1)


def test_the_names_of_aot_autograd() -> None:
    meta = meta_of(TwoTensor(torch.ones(2), torch.ones(2)))
    assert meta.original_subclass_type is TwoTensor and meta.meta is meta.context
    assert list(meta.attrs) == ["a", "b"] and meta.arg_count == 2


def test_symbolic_sizes_and_strides() -> None:
    meta = meta_of(TwoTensor(torch.ones(2, 3), torch.ones(2, 3)))
    assert isinstance(meta, SubclassCreationMeta) and (meta.symbolic_sizes, meta.symbolic_strides) == ((), ())
    symbolic = dataclasses.replace(meta, outer_size=(2, SYMBOLIC), outer_stride=(SYMBOLIC, 1))
    assert (symbolic.symbolic_sizes, symbolic.symbolic_strides) == ((1,), (0,))


def test_sizes_without_symints() -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    assert frozen_sizes(jagged.shape) == (2, NESTED_INT, 3)
    assert frozen_sizes([Symbols().size(5, "x.size(0)"), 3, torch.tensor(4)]) == (SYMBOLIC, 3, 4)


def test_a_description_is_hashed_by_what_is_not_a_dict() -> None:
    one, other = meta_of(TwoTensor(torch.ones(2), torch.ones(2))), meta_of(TwoTensor(torch.ones(2), torch.ones(2)))
    assert one == other and hash(one) == hash(other)
    assert one != meta_of(TwoTensor(torch.ones(3), torch.ones(3))) and one != PlainTensorMeta(0)
