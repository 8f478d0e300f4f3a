"""Random programs that a handler of signals interrupts."""

from __future__ import annotations

import dataclasses
from typing import Any

import hypothesis
import pytest
import torch

from subclass_aot import MetaTensor
from tests.fuzz import handlers
from tests.fuzz.handlers import DOES, EXAMPLE, DrawnHandler, check_handler


@hypothesis.settings(max_examples=5, deadline=None)
@hypothesis.given(handlers.handlers())
def test_random_programs(drawn: DrawnHandler) -> None:
    check_handler(drawn)


@pytest.mark.every_case
@pytest.mark.parametrize("does", DOES)
def test_each_thing_that_a_handler_does(does: str) -> None:
    for after in (0.5, 2, 5):
        assert check_handler(dataclasses.replace(EXAMPLE, does=does, after=(after,)))


def test_the_oracle_finds_tensors_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def loses(net: Any, noted: Any) -> None:
        noted.saved.append(MetaTensor(torch.ones(2)))

    monkeypatch.setitem(DOES, "copies", loses)
    with pytest.raises(AssertionError, match="without data"):
        check_handler(dataclasses.replace(EXAMPLE, does="copies", after=(0.5,)))
