"""Which calls are functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.transforms.pure import is_pure


def writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.sin()


def writes_its_own(x: torch.Tensor) -> torch.Tensor:
    return x.sin().add_(1)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (torch.sin, True),
        (writes_its_own, True),
        (lambda x: (x.sin(), 3), True),
        (lambda x: (x.sin(), x), False),
        (lambda x: (x.sin(), x.view(-1)), False),
        (lambda x: x * torch.rand(3), False),
        (lambda x: x.sin() if x.sum() > 0 else x.cos(), False),
        (lambda x: 3, False),
        (lambda x: x * x.storage_offset(), False),
        (writes, False),
    ],
)
def test_new_tensors_the_same_each_time(fn: Callable[..., Any], expected: bool) -> None:
    made = sa.aot_compile(fn).specialization_for((torch.ones(3),), {})
    assert is_pure(made.signature, made.graphs.forward) is expected
