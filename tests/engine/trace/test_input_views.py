"""Inputs that are views of one tensor, as a compiler author sees them in the joint graph."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.descriptors import descriptor_of


def program(a: Any, b: Any) -> Any:
    a.mul_(2)
    return b.sum()


def test_the_tensor_behind_the_views_is_the_input() -> None:
    base = torch.ones(4, requires_grad=True) * 1
    trace = trace_joint(program, base[:3], base[1:])
    assert [given.path for given in trace.signature.inputs] == ["args[0]._base"]
    assert trace.signature.views == ("args[0]", "args[1]")
    placeholders = [n for n in trace.graph_module.graph.nodes if n.op == "placeholder"]
    assert str(descriptor_of(placeholders[0])) == "args[0]._base" and placeholders[0].meta["spec"].size == (4,)
    assert [*trace.signature.mutations.under_autograd] == [0]


def test_views_that_lie_apart_stay_inputs() -> None:
    base = torch.ones(4, requires_grad=True) * 1
    signature = trace_joint(program, base[:2], base[2:]).signature
    assert [given.path for given in signature.inputs] == ["args[0]", "args[1]"] and not signature.views


def test_a_call_taken_apart_with_views() -> None:
    base = torch.ones(4)
    a, b, other = base[:3], base[1:], torch.ones(1)
    arguments = Arguments.of(program, (a, other, b, a), {})
    turned = arguments.with_views({"args[0]", "args[2]"})
    assert [v is w for v, w in zip(turned.values, (base, other), strict=True)] == [True, True]
    assert turned.view_of == (0, 0) and turned.paths_of_views == ("args[0]", "args[2]")
    assert [turned.path_of(i) for i in range(4)] == ["args[0]._base", "args[1]", "args[0]", "args[2]"]
    assert turned.value_at == (2, 1, 3, 2)
    with_base = Arguments.of(program, (base, a), {}).with_views({"args[1]"})
    assert with_base.values == (base,) and with_base.path_of(0) == "args[0]"
