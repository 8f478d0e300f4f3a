"""A write into a part of an input that overlaps itself is recorded as one into its storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Spec
from subclass_aot.errors import MutationError
from tests.graph.recording import raw, recorded

EXPANDED = Spec.of(torch.ones(3).expand(2, 3))


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (lambda x: x[0].mul_(2), ["select", "as_strided", "mul_"]),
        (lambda x: x[:1].fill_(2), ["slice_1", "as_strided", "fill_"]),
        (lambda x: x.fill_(2), ["as_strided", "as_strided_1", "fill_"]),
    ],
)
def test_a_part_is_written_through_the_storage(write: Callable[[Any], Any], names: list[str]) -> None:
    recorder, _ = recorded(write, EXPANDED)
    assert raw(recorder) == names
    through: Any = recorder.in_order()[-1].args[0]
    assert through.target is torch.ops.aten.as_strided.default and through.args[0].name == "primals_1"


def test_other_writes_into_the_whole_are_refused() -> None:
    with pytest.raises(MutationError, match="several elements are one place in memory"):
        recorded(lambda x: x.mul_(2), EXPANDED)


def test_a_tensor_that_lies_apart_is_written_itself() -> None:
    assert raw(recorded(lambda x: x[1:].mul_(2))[0]) == ["slice_1", "mul_"]
    assert raw(recorded(lambda x: x[0].mul(2).mul_(2), EXPANDED)[0]) == ["select", "mul", "mul_"]
