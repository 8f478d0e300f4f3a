"""A write into a part of an input that overlaps itself is recorded as one into its storage; windows are filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Spec
from subclass_aot.engine.graph import Recorder
from subclass_aot.errors import MutationError
from tests.engine.graph.recording import raw, recorded

EXPANDED = Spec.of(torch.ones(3).expand(2, 3))
WINDOWS = Spec.of(torch.ones(7).unfold(0, 3, 2))
aten: Any = torch.ops.aten


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
    assert through.target is aten.as_strided.default and len(through.args) == 3
    assert not recorder.begins_read, "it does not count from where the storage begins"


@pytest.mark.parametrize(
    ("write", "last"),
    [
        (lambda x: x.fill_(2), "fill_"),
        (lambda x: x.fill_(torch.tensor(2.0)), "fill_"),
        (lambda x: x.zero_(), "fill_"),
        (lambda x: x[1:].copy_(x[0, 0] * 2), "fill_"),
        (lambda x: x.copy_((x[0, 0] * 2).expand(3, 3)), "fill_"),
        (lambda x: x.copy_(torch.zeros_like(x)), "fill_"),
        (lambda x: x[::2].mul_(2), "mul_"),
        (lambda x: x[:, 0].mul_(2), "mul_"),
        (lambda x: x.masked_fill_(x > 1, 2), "masked_fill_"),
        (lambda x: x.unsqueeze(0).expand(2, 3, 3).masked_fill_(x > 1, 2), "masked_fill_"),
        (lambda x: x.unsqueeze(0).expand(2, 3, 3).fill_(2), "fill_"),
    ],
)
@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
def test_windows_that_overlap_get_one_value(write: Callable[[Any], Any], last: str) -> None:
    recorder, _ = recorded(write, WINDOWS)
    assert raw(recorder)[-1].rstrip("_0123456789") == last.rstrip("_")
    memory = torch.arange(7.0)
    expected = memory.clone()
    write(expected.unfold(0, 3, 2))
    nodes = dict(zip(recorder.graph.find_nodes(op="placeholder"), [memory.unfold(0, 3, 2)], strict=True))
    for node in recorder.in_order():  # as eager does what was recorded
        if node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), nodes.__getitem__)
            nodes[node] = node.target(*args, **kwargs)
        elif node.op == "get_attr":
            nodes[node] = recorder.listeners.real_tensors.constants[node.target]
    assert torch.equal(memory, expected)


def test_a_fill_of_windows_is_not_taken_apart() -> None:
    """A decomposition may write them one by one."""
    recorder = Recorder({aten.fill_.Scalar: lambda x, value: x.copy_(torch.full_like(x, value))})
    recorded(lambda x: x.fill_(2), WINDOWS, recorder=recorder)
    recorded(lambda x: x[0].fill_(2), WINDOWS, recorder=recorder)
    assert raw(recorder) == ["fill_", "select", "full_like", "as_strided", "copy_"]


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.copy_(x * 2), lambda x: x[:2].add_(1)])
def test_other_writes_into_windows_are_refused(write: Callable[[Any], Any]) -> None:
    with pytest.raises(MutationError, match=r"(?s)several elements are one place.*unfolded"):
        recorded(write, WINDOWS)


def test_other_writes_into_the_whole_are_refused() -> None:
    with pytest.raises(MutationError, match="several elements are one place in memory"):
        recorded(lambda x: x.mul_(2), EXPANDED)


def test_a_tensor_that_lies_apart_is_written_itself() -> None:
    assert raw(recorded(lambda x: x[1:].mul_(2))[0]) == ["slice_1", "mul_"]
    assert raw(recorded(lambda x: x[0].mul(2).mul_(2), EXPANDED)[0]) == ["select", "mul", "mul_"]
