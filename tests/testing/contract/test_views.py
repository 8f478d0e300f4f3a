"""Clause 22, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.testing.contract.classes import OURS, Held, Scaled, aten, broken, held, scaled

ONLY = (22,)


class CopyingSlice(Scaled):
    pass


@CopyingSlice.implements(aten.slice.Tensor)
def _(x: Any, *args: Any) -> Any:
    codes = aten.slice.Tensor(x.codes, *args)
    rows = codes.shape[0] != x.shape[0]
    return CopyingSlice(codes.clone(), aten.slice.Tensor(x.scale, *args).clone() if rows else x.scale.clone())


class ForgottenTranspose(Scaled):
    pass


@ForgottenTranspose.implements(aten.t.default, aten.transpose.int)
def _(x: Any, *dims: int) -> Any:
    return ForgottenTranspose(x.codes, x.scale)


class DenseViews(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.select.int:
            return args[0].held.select(*args[1:]).clone()
        return super().__torch_dispatch__(func, types, args, kwargs)


class ShortSplit(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return out[:-1] if func is aten.unbind.int else out


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_classes() -> None:
    assert broken(held(Held), ONLY) == {}
    assert broken(scaled(Scaled), ONLY) == {}


def test_slice_that_copies() -> None:
    found = broken(scaled(CopyingSlice), ONLY)
    slices = {"x[:1]", "x[..., 1:]", "x[..., :half]", "x[:1].squeeze(0)", "x.narrow(0, 0, 1)"}
    assert slices <= set(found) <= slices | {"x.split(1)", "x.chunk(2)"}
    assert "a view holds copies of inner tensors" in found["x[:1]"]


def test_t_that_forgets_to_transpose() -> None:
    found = broken(scaled(ForgottenTranspose, 4, 4), ONLY)
    assert set(found) == {"x.t()", "x.transpose(0, -1)"}
    assert all("the view has" in why for why in found.values())


def test_view_that_is_dense() -> None:
    found = broken(held(DenseViews), ONLY)
    assert set(found) == {"x[0]"} and "the view is a Tensor" in found["x[0]"]


def test_too_few_views() -> None:
    assert broken(held(ShortSplit), ONLY) == {"x.unbind(0)": "3 views, not 4"}


def test_a_class_without_readings_says_so() -> None:
    assert broken(lambda: Held(torch.randn(4, 6)), ONLY, []) == {}
