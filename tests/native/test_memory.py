"""The memory and the versions of tensors, read in C++: what Python says of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subclass_aot.base import hooks
from subclass_aot.engine.runtime.version_counters import counters

BASE = torch.arange(6.0)
TENSORS: list[Any] = [
    BASE, BASE[2:], BASE.detach(), torch.ones(6), torch.ones(2, 3).t(), torch.empty(0), torch.empty(0),
    torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 2, torch.nn.Parameter(torch.ones(3)),
]  # fmt: skip
CHOSEN = st.lists(st.integers(0, len(TENSORS) - 1), max_size=6)
SETTINGS = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(chosen=CHOSEN)
def test_memory_as_in_python(chosen: list[int], built: ModuleType) -> None:
    tensors = [TENSORS[i] for i in chosen]
    pointers = {x.untyped_storage().data_ptr() for x in tensors}
    assert built.are_apart(*tensors) is (len(pointers) == len(tensors))


def test_copies_that_wait_for_a_write_have_memory_of_their_own(built: ModuleType) -> None:
    x = torch.ones(4)
    y = torch._lazy_clone(x)
    assert built.are_apart(x, y) is (len({z.untyped_storage().data_ptr() for z in (x, y)}) == 2)


def test_memory_of_many(built: ModuleType) -> None:
    many = [torch.ones(1) for _ in range(1000)]
    assert built.are_apart(*many) and not built.are_apart(*many, many[500].detach()) and built.are_apart(*many[:3])


@SETTINGS
@given(chosen=CHOSEN, flip=st.integers(0, 7))
def test_leaves_as_in_python(chosen: list[int], flip: int, built: ModuleType) -> None:
    tensors = [TENSORS[i] for i in chosen]
    leaves = tuple([x.is_leaf ^ (i == flip) for i, x in enumerate(tensors)])
    assert built.are_leaves(leaves, *tensors) is (leaves == tuple([x.is_leaf for x in tensors]))


@SETTINGS
@given(silent=CHOSEN, counted=CHOSEN)
def test_versions_as_in_python(silent: list[int], counted: list[int], built: ModuleType) -> None:
    memory, given_ = hooks.memory, ([TENSORS[i] for i in silent], [TENSORS[i] for i in counted])
    try:
        hooks.memory = None
        python = counters(*given_)
        hooks.memory = built
        native = counters(*given_)
    finally:
        hooks.memory = memory
    assert list(map(id, native[0])) == list(map(id, python[0])) and native[1] == python[1]


def test_what_has_no_version(built: ModuleType) -> None:
    with torch.inference_mode():
        x = torch.ones(2)
    assert built.next_versions([], [x]) is None and built.next_versions([], []) == ((), ())


def test_versions_are_set(built: ModuleType) -> None:
    x, y = torch.ones(2), torch.ones(2)
    built.set_versions((x, y[1:]), (3, 5))
    assert (x._version, y._version) == (3, 5)
    with pytest.raises(ValueError, match="not negative"):
        built.set_versions((x,), (-1,))


def test_errors(built: ModuleType) -> None:
    with pytest.raises(TypeError, match="not int"):
        built.are_apart(1)
    with pytest.raises(TypeError, match="as many tensors"):
        built.are_leaves((True,), *TENSORS)
    with pytest.raises(TypeError, match="two lists"):
        built.next_versions((), ())
    with pytest.raises(TypeError, match="not str"):
        built.next_versions(["x"], [])
