"""What wrappers have in them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import subclass_utils as torchs

from subclass_aot.doors.aotautograd import (
    compute_symint_placeholders,
    create_subclass_meta,
    enumerate_filter_symints,
    get_subclass_typing_container,
)
from tests.doors.aotautograd.lists import VALUES, fakes_of, two
from tests.kit.flatten.test_creation import Bag


@given(VALUES, st.booleans())
def test_classes_and_numbers_are_torchs(values: list[Any], symbolic: bool) -> None:
    fakes = fakes_of(values, symbolic)
    for value, meta in zip(fakes, create_subclass_meta(fakes), strict=True):
        if not isinstance(value, torch.Tensor):
            continue
        theirs, ours = torchs.get_subclass_typing_container(value), get_subclass_typing_container(value)
        assert list(theirs) == list(ours)
        for cls, wrappers in theirs.items():
            assert all(a is b for a, b in zip(wrappers, ours[cls], strict=True))
        for kind in ("size", "stride"):
            numbers = getattr(value, kind)()
            found, expected = enumerate_filter_symints(numbers), torchs.enumerate_filter_symints(numbers)
            assert [(i, str(n)) for i, n in found] == [(i, str(n)) for i, n in expected]
            frozen = getattr(meta, f"outer_{kind}", ())
            assert compute_symint_placeholders(frozen) == torchs.compute_symint_placeholders(frozen)
            assert not frozen or [i for i, is_open in enumerate(compute_symint_placeholders(frozen)) if is_open] == [
                i for i, _ in found
            ]


def test_containers_and_absent_parts_are_looked_into() -> None:
    inner = two()
    value = Bag({"parts": [torch.ones(2), inner], "none": None, "named": {"k": two()}})
    found = get_subclass_typing_container(value)
    assert list(found) == [Bag, type(inner)] and found[Bag] == [value] and found[type(inner)][0] is inner
    assert get_subclass_typing_container(torch.ones(1)) == {}


def test_a_nested_int_is_no_number() -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert enumerate_filter_symints(jagged.size()) == torchs.enumerate_filter_symints(jagged.size()) == []
