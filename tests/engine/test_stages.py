"""`stages` shows what becomes of a call, without a trace of it in what is compiled."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from subclass_aot import Int8Weight, aot_compile
from subclass_aot.base import hooks
from subclass_aot.engine.stages import note_stage, noted_stages


def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    x.add_(1)
    return (x @ weight.t()).relu().sum()


def test_all_stages_of_a_training_step_are_shown() -> None:
    compiled = aot_compile(loss, fw_compiler=lambda graph, inputs: 1 / 0)  # nothing is compiled
    stages = compiled.stages(Int8Weight.from_float(torch.randn(4, 3)), torch.randn(2, 3, requires_grad=True))
    assert "aten.add_.Tensor(mul, 1)" in stages.recorded and "# x.add_(1)" in stages.recorded
    assert "aten.add_" not in stages.functional and "add.Tensor(mul, 1)" in stages.functional
    assert "tangents_1" in stages.joint and "return (sum_1, " in stages.joint
    assert "tangents_1" not in stages.forward and 'primals_1: "i8[4, 3]"' in stages.forward
    assert "tangents_1" in stages.backward
    compares = "type(args_0) is not Int8Weight" if hooks.make_table is None else "args[0]: subclass_aot.tensors."
    assert compares in stages.code and "def backward(" in stages.code
    shown = str(stages)
    assert all(f"# {field.name}: " in shown for field in dataclasses.fields(stages))
    assert compiled.source.startswith("# Nothing was compiled yet"), "nothing is kept"


def test_without_gradients_there_is_no_backward() -> None:
    stages = aot_compile(torch.sin).stages(torch.ones(2))
    assert not stages.backward and "# backward: " not in str(stages)
    assert stages.recorded.splitlines()[:2] == stages.functional.splitlines()[:2]


def test_sizes_that_are_symbols_by_now_are_symbols_in_the_stages() -> None:
    compiled = aot_compile(torch.sin)
    compiled(torch.ones(2)), compiled(torch.ones(3))
    assert 'primals_1: "f32[s' in compiled.stages(torch.ones(4)).joint
    assert len(compiled.recompiles) == 1


def test_nothing_is_noted_unless_somebody_wants_to_read_it() -> None:
    note_stage("recorded", list)
    with noted_stages() as texts, pytest.raises(ZeroDivisionError):
        aot_compile(lambda x: 1 / 0).stages(torch.ones(2))
    note_stage("recorded", list)
    assert texts == {}
