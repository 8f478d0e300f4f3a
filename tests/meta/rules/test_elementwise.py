"""Strides of results where a number stands beside a tensor: as the kernel gives them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import MetaTensor, TwoTensor
from subclass_aot.testing import check_compiled

aten: Any = torch.ops.aten
OPERATORS = [
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.rsub.Scalar, aten.mul.Tensor, aten.mul.Scalar,
    aten.div.Tensor, aten.div.Scalar, aten.remainder.Scalar, aten.fmod.Scalar, aten.eq.Scalar, aten.lt.Scalar,
    aten.ge.Scalar, aten.bitwise_and.Scalar, aten.bitwise_xor.Scalar,
]  # fmt: skip
LOOKS = [
    (size, stride)
    for size in [(2, 1), (1, 2), (1, 1), (2, 3), (2, 1, 3)]
    for stride in itertools.product((1, 2, 3, 7), repeat=len(size))
    if len(size) == 2 or len({*stride}) == 3
]


@pytest.mark.parametrize("func", OPERATORS, ids=str)
def test_strides_are_those_of_the_kernel(func: Any) -> None:
    dtype = torch.int64 if "bitwise" in str(func) else torch.float32
    for size, stride in LOOKS:
        x = torch.ones(40, dtype=dtype).as_strided(size, stride)
        found, expected = func(MetaTensor.like(x), 2), func(x, 2)
        assert (found.stride(), found.dtype) == (expected.stride(), expected.dtype), (size, stride)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.complex64])
@pytest.mark.parametrize("func", [aten.add.Tensor, aten.div.Tensor, aten.eq.Tensor, aten.where.self], ids=str)
def test_tensors_of_other_dtypes_are_cast_first(func: Any, dtype: torch.dtype) -> None:
    x, repeated = torch.ones(8, dtype=dtype).as_strided((2, 1, 4, 1), (4, 4, 1, 4)), torch.ones(2, 1, 1, 1)
    others = [repeated.expand(2, 1, 4, 1), torch.ones(8).as_strided((2, 1, 4, 1), (1, 1, 2, 1)), torch.ones(1, 4, 1)]
    for operands in [pair for other in others for pair in ((x, other), (other, x))]:
        args = (torch.ones(2, 1, 4, 1, dtype=torch.bool), *operands) if func is aten.where.self else operands
        assert func(*map(MetaTensor.like, args)).stride() == func(*args).stride(), [y.stride() for y in operands]


def test_a_class_that_compares_strides() -> None:
    """Its outer strides are ours to tell, since one of its inner tensors is a wrapper of ours."""
    inner = TwoTensor(torch.rand(6).as_strided((2, 1), (1, 2), 4), torch.rand(2, 1))
    outer = ForeignTwoTensor(inner, torch.rand(6).as_strided((2, 1), (1, 2), 4))
    check_compiled(lambda x: x * 2, (outer,))
