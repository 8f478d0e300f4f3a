"""Which sizes become symbols."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, mark_dynamic
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.sizes import DynamicPolicy


def sizes(history: DynamicPolicy, *args: Any, fn: Any = None) -> Any:
    found = history.next(Arguments.of(fn or (lambda *args: None), args, {}))
    return found if found is None else found.sizes


def test_a_size_that_differs_is_a_symbol_for_good() -> None:
    history = DynamicPolicy(None)
    assert sizes(history, torch.ones(4, 3)) is None
    assert sizes(history, torch.ones(5, 3)) == {"args[0]": {0}}
    assert sizes(history, torch.ones(4, 3)) == {"args[0]": {0}}
    assert sizes(history, torch.ones(4, 2)) == {"args[0]": {0, 1}}


def test_another_rank_begins_anew() -> None:
    history = DynamicPolicy(None)
    assert [sizes(history, torch.ones(s)) for s in ((4, 3), (4,), (5,))] == [None, None, {"args[0]": {0}}]


def test_inner_tensors_have_sizes_of_their_own() -> None:
    history = DynamicPolicy(None)
    for n in (4, 5):
        found = sizes(history, TwoTensor(torch.ones(n, 3), torch.ones(n, 3)))
    assert found == {"args[0]": {0}, "args[0].a": {0}, "args[0].b": {0}}


def test_a_stride_that_follows_from_no_size() -> None:
    history = DynamicPolicy(None)
    for n in (8, 9):
        found = history.next(Arguments.of(lambda x: None, (torch.ones(4, n)[:, :3],), {}))
    assert found is not None and found.strides == {"args[0]": {0}} and not found.sizes


def test_all_sizes_but_those_of_parameters() -> None:
    assert sizes(DynamicPolicy(True), torch.ones(4, 3), fn=torch.nn.Linear(3, 2)) == {"args[0]": {0, 1}}


@pytest.mark.parametrize(
    ("dynamic", "expected"), [(None, {"args[0]": {1}}), (True, {"args[0]": {0, 1}}), (False, None)]
)
def test_marks(dynamic: bool | None, expected: Any) -> None:
    x = torch.ones(4, 3)
    mark_dynamic(x, 1)
    assert sizes(DynamicPolicy(dynamic), x) == expected


def test_two_tensors_of_one_name_have_no_symbols() -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = object.__hash__

        def __repr__(self) -> str:
            return "same"

    for policy in (DynamicPolicy(None), DynamicPolicy(True)):
        for n in (4, 6):
            state = {Same(): torch.ones(n, 3), Same(): torch.ones(n + 1, 3)}
            found = sizes(policy, torch.ones(n), fn=lambda x, state=state: state)
        assert found == {"args[0]": {0}}
