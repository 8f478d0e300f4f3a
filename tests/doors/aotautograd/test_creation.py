"""Metas under AOTAutograd's name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import subclass_utils as torchs
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.doors import aotautograd
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten.metas import frozen_sizes
from tests.doors.aotautograd.lists import VALUES, fakes_of, two


def same_meta(theirs: Any, ours: Any) -> bool:
    if not hasattr(theirs, "attrs"):
        return not hasattr(ours, "attrs")
    return (
        (theirs.flat_tensor_start_idx, theirs.arg_count, theirs.meta, theirs.included_subclass_symints)
        == (ours.flat_tensor_start_idx, ours.arg_count, ours.meta, ours.included_subclass_symints)
        and type(theirs.original_subclass) is ours.original_subclass_type
        and (frozen_sizes(theirs.outer_size), frozen_sizes(theirs.outer_stride)) == (ours.outer_size, ours.outer_stride)
        and list(theirs.attrs) == list(ours.attrs) == ours.inner_keys
        and all(same_meta(theirs.attrs[name], ours.attrs[name]) for name in theirs.attrs)
    )


@given(VALUES, st.booleans(), st.booleans())
def test_metas_are_torchs(values: list[Any], symbolic: bool, count_symints: bool) -> None:
    fakes = fakes_of(values, symbolic)
    ours = aotautograd.create_subclass_meta(fakes, count_symints=count_symints)
    theirs = torchs.create_subclass_meta(fakes, count_symints=count_symints)
    assert all(same_meta(a, b) for a, b in zip(theirs, ours, strict=True))
    plain = [(a.unwrapped_idx, b.unwrapped_idx) for a, b in zip(theirs, ours, strict=True) if not hasattr(a, "attrs")]
    assert all(a == b for a, b in plain)


@given(VALUES.map(lambda values: [x for x in values if isinstance(x, torch.Tensor)]), st.booleans())
def test_memory_formats_are_torchs(values: list[Any], symbolic: bool) -> None:
    fakes = fakes_of(values, symbolic)
    ours = aotautograd.create_subclass_meta(fakes, with_memory_format=True)
    theirs = torchs.create_subclass_meta(fakes, with_memory_format=True)

    def compare(a: Any, b: Any) -> None:
        assert str(a.memory_format) == str(b.memory_format) and b.memory_format is not None
        for name in getattr(a, "attrs", ()):
            compare(a.attrs[name], b.attrs[name])

    for a, b in zip(theirs, ours, strict=True):
        compare(a, b)
    leaves = aotautograd.unwrap_tensor_subclasses(fakes, append_symints=True, subclass_metas=ours)
    again = aotautograd.wrap_tensor_subclasses(leaves, subclass_metas=ours, included_subclass_symints=True)
    assert [type(x) for x in again] == [type(x) for x in fakes]
    assert {meta.memory_format for meta in aotautograd.create_subclass_meta(fakes)} <= {None}
    assert aotautograd.create_subclass_meta([3], with_memory_format=True)[0].memory_format is None


@pytest.mark.parametrize("values", [two(), torch.ones(2, 2), {"a": torch.ones(2)}, torch.nn.Linear(2, 2), iter([])])
def test_what_is_no_list_is_refused(values: Any) -> None:
    with pytest.raises(PlanError, match="^`curr_args` is .*, and not a list or tuple of values"):
        aotautograd.create_subclass_meta(values)


def test_a_meta_makes_its_wrapper() -> None:
    """The names of AOTAutograd's own metas."""
    values = [torch.ones(3), TwoTensor(two(2), two(3)), two(4)]
    for create in (
        aotautograd.create_subclass_meta,
        lambda v: aotautograd.create_subclass_meta(v, with_memory_format=True),
    ):
        metas: Any = create(values)
        leaves = aotautograd.unwrap_tensor_subclasses(values, append_symints=True)
        metas[1].make_runtime_safe()
        for is_runtime in (False, True):
            made = metas[1].creation_fn(leaves, is_runtime=is_runtime)
            assert type(made) is type(made.a) is TwoTensor and made.b.a is leaves[3] and made.shape == (2,)
        assert metas[1].inner_keys == ["a", "b"] and metas[1].original_subclass is None
        with pytest.raises(PlanError, match=r"args.a.b: its slot is number 2 of the flat list, which has 2"):
            metas[1].creation_fn(leaves[:2], is_runtime=True)
        with pytest.raises(PlanError, match=r"args.b.a: planned as an inner tensor, got None"):
            metas[1].creation_fn([*leaves[:3], None, *leaves[4:]], is_runtime=True)
