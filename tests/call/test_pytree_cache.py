"""A call that looks like the one before is flattened as it is anew."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.call import flatten
from subclass_aot.call.pytree_cache import PytreeCache


def test_every_call_is_flattened_as_it_is_alone() -> None:
    x, y = torch.ones(2), TwoTensor(torch.ones(2), torch.ones(2))
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((x,), {}),
        ((y,), {}),
        ((x, y), {}),
        ((y, x), {}),
        (([x, y],), {}),
        (((x,), y), {}),
        (([], x), {}),
        ((None, x), {}),
        ((2, x), {}),
        ((x,), {"y": y}),
        ((x, y), {"z": None}),
        ((torch.nn.Linear(2, 2),), {}),
        (({"a": x},), {}),
    ]
    flat = PytreeCache()
    for before in calls:
        for call in calls:
            for args, kwargs in (before, call, call):
                (leaves, treespec), (expected, structure) = flat(args, kwargs), flatten((args, kwargs))
                assert treespec == structure
                assert list(map(id, leaves)) == list(map(id, expected)), "the very objects"


def test_a_known_call_has_the_same_structure_object() -> None:
    flat, x = PytreeCache(), torch.ones(2)
    assert flat((x, x), {})[1] is flat((torch.zeros(3), x), {})[1]
    first, second = flat((x,), {})[0], flat((x,), {})[0]
    assert first is not second, "a list that callers may change"
