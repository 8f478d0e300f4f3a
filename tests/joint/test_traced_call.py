"""What the call was like that was traced, without its tensors."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import trace_joint
from subclass_aot.call import Arguments
from subclass_aot.errors import JointGraphError


def test_it_holds_nothing_of_the_call() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    joint = trace_joint(layer, x)
    gone = [weakref.ref(layer), weakref.ref(layer.weight), weakref.ref(x)]
    del layer, x
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3 and joint.call.order == ("weight", "bias", "args[0]")


def test_names_of_every_place() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    call = trace_joint(module, torch.rand(1, 2)).call
    assert call.names["1.weight"] == call.names["self.1.weight"] == "0.weight"


def test_many_differences_are_cut() -> None:
    module, x = nn.Sequential(*(nn.Linear(2, 2) for _ in range(8))), torch.rand(1, 2)
    joint = trace_joint(module, x)
    module.to(torch.bfloat16)
    arguments = Arguments.of(module, (x,), {}).parameters_first()
    with pytest.raises(JointGraphError, match=r"self.3.bias: .*\n  and 8 more\n"):
        joint.call.refuse_other(arguments, joint.signature)


def test_the_code_of_a_function_tells_it_from_another() -> None:
    def make(factor: int) -> Any:
        return (lambda x: x * 2) if factor == 2 else (lambda x: x * 3)

    call = trace_joint(make(2), torch.ones(2)).call
    call.refuse_other_function(make(2))
    with pytest.raises(JointGraphError, match="another of that name"):
        call.refuse_other_function(make(3))
