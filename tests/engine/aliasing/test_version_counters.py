"""The version of each tensor in a tree, by its path."""

from __future__ import annotations

import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.aliasing import versions
from subclass_aot.kit.flatten import create_subclass_meta
from tests.fuzz.trees import Parts


def test_paths_and_counters() -> None:
    tensor = TwoTensor(TwoTensor(torch.ones(2), torch.ones(2)), Parts([torch.ones(2), torch.ones(2)]))
    (meta,) = create_subclass_meta([tensor])
    before = versions(tensor, meta)
    assert list(before) == ["", ".a", ".a.a", ".a.b", ".b", ".b.parts_0", ".b.parts_1"] and not any(before.values())
    tensor.mul_(2)
    tensor.a.b.add_(1)
    tensor.a.b.add_(1)
    assert {path: n for path, n in versions(tensor, meta).items() if n} == {"": 1, ".a.b": 2}


def test_values_that_are_no_tensors_have_none() -> None:
    metas = create_subclass_meta([3, torch.ones(2)])
    assert [versions(x, meta) for x, meta in zip((3, torch.ones(2)), metas, strict=True)] == [{}, {"": 0}]
