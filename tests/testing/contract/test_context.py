"""Clauses 15 to 19, on contexts with one mistake each."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from tests.testing.contract.classes import Held, broken, held, int8_weight, two_tensor
from tests.testing.contract.wrong_apart import HashByIdentity, NoEquality, Restless, Strict, TensorAnswer

ONLY = range(15, 20)


@pytest.mark.parametrize("make", [held(Held), held(Held, lambda: ("a", 1)), two_tensor, int8_weight])
def test_right_classes(make: Any) -> None:
    assert broken(make, ONLY) == {}


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (held(Held, NoEquality), "equality", "have contexts that are not equal"),
        (held(Held, TensorAnswer), "equality", "== gives a Tensor"),
        (held(Held, lambda: (1, {"a": torch.ones(2)})), "no tensor in the context", "holds a tensor"),
        (held(Held, lambda: ("a", ["list"])), "immutable", "['list']"),
        (held(Held, threading.Lock), "copies", "cannot pickle"),
        (held(Held, HashByIdentity), "hash", "other hashes"),
        (held(Strict), "metadata guard", "does not hold"),
        (held(Restless), "stable hash", "never hit"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    assert says in broken(make, ONLY)[name]
