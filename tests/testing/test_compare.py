"""The comparison that other tests rely on sees every kind of difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.testing import cut_off, dense_leaves, difference, rebuilt, sharing
from tests.fuzz.trees import Parts, Scaled, Tagged


def ones(*size: int, **options: Any) -> torch.Tensor:
    return torch.ones(size, **options)


def test_eight_bits_of_floating_point() -> None:
    x, y = ones(2), ones(2) * 2
    assert difference(x.to(torch.float8_e4m3fn), x.to(torch.float8_e4m3fn)) == ""
    assert "values" in difference(x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn))


def test_equal_trees() -> None:
    def make() -> Any:
        return TwoTensor(Tagged(ones(2, 3), ones(2, 3), 1), Parts([ones(2, 3), ones(2, 3)])).requires_grad_()

    assert difference(make(), make()) == ""
    assert difference(rebuilt(make(), torch.clone), make().detach()) == ""
    assert len(dense_leaves(make())) == 4


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: ones(2, 3), "TwoTensor expected, Tensor got"),
        (lambda: TwoTensor(ones(2, 3), Tagged(ones(2, 3), None, 1)), ".b: ['value']"),
        (lambda: TwoTensor(ones(2, 3), Tagged(ones(2, 3), ones(2, 3))), ".b: ['value']"),
        (lambda: TwoTensor(ones(2, 3), Tagged(ones(2, 3) * 2)), ".b: .value: values"),
        (lambda: TwoTensor(ones(2, 3), Tagged(ones(2, 3, dtype=torch.float64))), ".b: dtype"),
        (lambda: TwoTensor(ones(3, 2).t(), Tagged(ones(2, 3))), "stride"),
        (lambda: TwoTensor(ones(2, 3), Tagged(ones(3, 2).t())), ".b: stride"),
        (lambda: TwoTensor(ones(2, 3), Tagged(ones(2, 3))).requires_grad_(), "requires_grad"),
        (lambda: TwoTensor(ones(2, 4), Tagged(ones(2, 4))), "shape"),
    ],
)
def test_differences(other: Any, said: str) -> None:
    found = difference(TwoTensor(ones(2, 3), Tagged(ones(2, 3))), other())
    assert said in found, found


def test_strides_of_what_has_nothing_to_step_to() -> None:
    assert difference(ones(1, 3), ones(3, 1).t()) == ""
    assert difference(ones(2, 3), ones(3, 2).t(), strides=False) == ""


def test_sharing_looks_at_leaves() -> None:
    x = ones(2)
    assert sharing([TwoTensor(x, ones(2)), x[1:], TwoTensor(x, x), ones(0)]) == [(0, 1), (0,), (0, 0), ()]


def test_cut_off() -> None:
    x = ones(2, 2).requires_grad_()
    with torch.no_grad():
        view, leaf = x[0], x[1].requires_grad_()
    assert cut_off(view) and not cut_off(leaf) and not cut_off(leaf * 2)
    assert cut_off(view[0]) and not cut_off(x[0]) and not cut_off(x) and not cut_off(x.detach())
    assert cut_off(view * 2 + 1) and not cut_off(view * x) and not cut_off(x * 2)


def test_a_scaled_tensor_keeps_what_is_copied_into_it() -> None:
    room = torch.empty_like(Scaled(ones(2, 3), torch.full((2, 1), 4.0)))
    room.copy_(ones(2, 3) * 5)
    assert torch.equal(room.to_plain(), ones(2, 3) * 5)
