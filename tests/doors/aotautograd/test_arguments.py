"""What is given to the functions under AOTAutograd's names."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.doors.aotautograd.arguments import Generated, are_ours
from subclass_aot.kit.flatten import create_subclass_meta
from tests.doors.aotautograd.lists import two

VALUES = [two(1), torch.ones(3), 4]
METAS = create_subclass_meta(VALUES)
PLAIN = create_subclass_meta([torch.ones(1)])


def test_code_is_generated_once_for_each_list_of_metas() -> None:
    made: list[int] = []

    def make(metas: tuple[Any, ...]) -> Any:
        made.append(len(metas))
        return len

    functions = Generated(make, capacity=2)
    other = create_subclass_meta(VALUES)
    for metas in (METAS, list(METAS), tuple(METAS), other, METAS):
        functions.get(metas)
    assert made == [3, 3]
    functions.get(PLAIN)
    functions.get(METAS)  # the oldest has left
    assert made == [3, 3, 1, 3]


def test_whose_metas_they_are() -> None:
    assert are_ours(METAS) and are_ours([]) and not are_ours([*METAS, 3])
