"""Version counters move as in eager mode, whatever the compiler's code counts."""

from __future__ import annotations

import torch

from subclass_aot.engine.runtime.version_counters import counters, reshape, set_versions, undo_bump
from subclass_aot.engine.signature import MetadataMutation
from subclass_aot.kit.views import Step


def test_a_silent_write_does_not_count_and_another_counts_once() -> None:
    silent, counted = torch.zeros(2), torch.zeros(2)
    found = counters([silent], [counted])
    silent.add_(1)
    counted.add_(1).add_(1)  # as often as a compiler's code likes
    set_versions(found)
    assert (silent._version, counted._version) == (0, 1)


def test_a_tensor_counts_as_often_as_it_is_named() -> None:
    x = torch.zeros(4)
    set_versions(counters([], [x, x[1:], x]))
    assert x._version == 3


def test_counted_tensors_that_share_a_counter_with_silent_ones_count() -> None:
    x = torch.zeros(4)
    set_versions(counters([x], [x[1:]]))
    assert x._version == 1


def test_tensors_of_inference_mode_have_no_version() -> None:
    with torch.inference_mode():
        x = torch.zeros(2)
    found = counters([x], [x])
    assert found == ((), ())
    set_versions(found)


def test_a_write_that_was_counted_before_counts_once() -> None:
    x = torch.zeros(2)
    set_versions(counters([], [x]))
    undo_bump(x)
    x.add_(1)
    assert x._version == 1
    fresh = torch.zeros(2)
    undo_bump(fresh)
    assert fresh._version == 0


def test_a_change_of_sizes_is_made_again_and_counted_once() -> None:
    changes = [
        MetadataMutation(Step(torch.Tensor.t_), False),
        MetadataMutation(Step(torch.Tensor.unsqueeze_, (0,)), False),
    ]
    eager, x = torch.zeros(2, 3), torch.zeros(2, 3)
    eager.t_().unsqueeze_(0)
    set_versions(counters([], [x, x]))  # before the graph saves anything
    reshape(changes, x)
    assert x.shape == eager.shape and x.stride() == eager.stride() and x._version == eager._version == 2
    with torch.inference_mode():
        made = torch.zeros(2, 3)
        reshape(changes, made)
    assert made.shape == eager.shape
