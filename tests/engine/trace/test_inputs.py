"""The tensors of a call as graph inputs: a plan that holds none of them, and the fakes that the function is given."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import MetaTensor, TwoTensor, mark_static_address, trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.sizes import DynamicSizes
from subclass_aot.engine.trace.inputs import InputPlan, plan_inputs
from subclass_aot.errors import TraceError
from subclass_aot.meta import Storage
from subclass_aot.meta.symbols import SizesMustBeKnown, is_symbolic
from tests.engine.trace.stages import begun


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def plan_of(fn: Any, *args: Any, dynamic: DynamicSizes | None = None) -> InputPlan:
    return plan_inputs(Arguments.of(fn, args, {}), dynamic)[0]


class Model(nn.Module):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two(3))
        self.register_buffer("mean", torch.zeros(3))
        self.scale = torch.rand(3)

    def forward(self, x: Any) -> Any:
        return x * self.weight * self.scale + self.mean


def test_inputs_say_what_they_are_and_graph_inputs_what_is_in_them() -> None:
    plan = plan_of(Model(), two(3))
    kinds = dict(zip(plan.paths, [type(desc).__name__ for desc in plan.descs], strict=True))
    assert kinds == {
        "args[0]": "PlainInput",
        "self.weight": "ParamInput",
        "self.mean": "BufferInput",
        "self.scale": "HeldInput",
    }
    slots = {str(plan.desc_of(slot)): plan.is_dense(slot) for slot in plan.graph_slots}
    assert slots.pop("self.mean") and slots.pop("self.scale")
    assert slots == dict.fromkeys(["args[0].a", "args[0].b", "self.weight.a", "self.weight.b"], False)


def test_which_inputs_are_leaves_of_autograd_and_which_stay_in_place() -> None:
    x = torch.rand(3, requires_grad=True)
    plan = plan_of(lambda *_: None, x, x * 2, mark_static_address(torch.rand(3)))
    assert plan.are_leaves == (True, False, True) and plan.static == {2}


def test_the_plan_holds_no_tensor_of_the_call() -> None:
    x = torch.rand(3)
    held = weakref.ref(x)
    plan = plan_of(torch.sin, x)
    del x
    assert held() is None and plan.paths == ("args[0]",)


def test_sizes_that_are_symbols_are_symbols_of_the_trace() -> None:
    known = plan_of(torch.sin, torch.rand(4, 3))
    assert known.symbols is None
    with begun(torch.sin, torch.rand(4, 3), dynamic=DynamicSizes({"args[0]": {0}})) as (_, user, inputs):
        (spec,) = inputs.specs
        assert is_symbolic(spec.size[0]) and spec.size[1] == 3 and inputs.plan.symbols is not None
        assert user.leaves[0].shape == (4, 3)


def test_what_stands_for_a_leaf_is_a_leaf_and_for_what_was_computed_is_none() -> None:
    x = torch.rand(3, requires_grad=True)
    with begun(lambda *_: None, x, x * 2, torch.rand(3)) as (_, _, inputs):
        leaf, computed, plain = inputs.traced
        assert leaf is inputs.autograd_leaves[0] and leaf.is_leaf and leaf.requires_grad
        assert computed.grad_fn is not None and inputs.autograd_leaves[1].is_leaf
        assert not plain.requires_grad and inputs.requires_grad_inputs == [0, 1]
        assert [before.requires_grad for before in inputs.before] == [True, True, False]
        computed.mul_(2)
        assert inputs.before[1].grad_fn is not computed.grad_fn, "it is what was true before"
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            leaf.mul_(2)
    with begun(lambda *_: None, x, x * 2, inference=True) as (_, _, inputs):
        assert not inputs.requires_grad_inputs and all(x.requires_grad and x.grad_fn is None for x in inputs.traced)


@pytest.mark.parametrize("make", [torch.rand, two])
def test_a_parameter_is_a_parameter(make: Any) -> None:
    with begun(lambda *_: None, nn.Parameter(make(3)), make(3)) as (_, _, inputs):
        assert [isinstance(x, nn.Parameter) for x in inputs.traced] == [True, False]
        assert type(inputs.traced[0]) is type(inputs.traced[1])


def test_each_leaf_has_a_placeholder_and_fakes_are_made_of_them() -> None:
    with begun(lambda *_: None, two(3), torch.rand(2)) as (recorder, _, inputs):
        assert inputs.traced[0].a is inputs.leaves[0] and inputs.traced[0].b is inputs.leaves[1]
        assert inputs.traced[1] is inputs.leaves[2] and inputs.seen == inputs.traced
        assert [recorder.node_of(leaf).name for leaf in inputs.leaves] == [f"primals_{i}" for i in (1, 2, 3)]
        assert [inputs.is_among(slot, {Storage.of(inputs.leaves[1])}) for slot in range(3)] == [False, True, False]


def test_a_grad_is_there_but_whoever_computes_with_it_is_refused() -> None:
    x = torch.rand(3, requires_grad=True)
    x.grad = torch.rand(3)
    assert trace_joint(lambda x: x * 2 if x.grad is not None else x, x).signature.needs_backward
    with begun(lambda x: x, x) as (_, _, inputs):
        assert inputs.traced[0].grad.shape == (3,)
        with pytest.raises(BaseException, match="with_grad") as caught:
            inputs.traced[0].grad * 2  # noqa: B018
        assert type(caught.value).__name__ == "Retrace"


def test_a_tensor_of_a_trace_that_is_over_is_refused() -> None:
    with begun(torch.sin, torch.rand(3)) as (recorder, _, inputs):
        (kept,) = inputs.traced
    recorder.graph.is_over = True  # type: ignore[attr-defined]
    assert isinstance(kept, MetaTensor)
    with pytest.raises(TraceError, match=r"args\[0\]\['kept'\]: this tensor belongs to a trace that is over"):
        trace_joint(lambda x: x["kept"] * 2, {"kept": kept})


def test_where_sizes_must_be_known_the_inputs_are_named() -> None:
    dynamic = DynamicSizes({"args[1]": {0}})
    with begun(lambda *_: None, torch.rand(4), torch.rand(4), dynamic=dynamic) as (_, _, inputs):
        inputs.need_known_sizes([0])
        with pytest.raises(SizesMustBeKnown) as caught:
            inputs.need_known_sizes([0, 1])
        assert list(caught.value.paths) == ["args[1]"]


def test_gradients_stand_beside_the_inputs_that_have_them() -> None:
    weight = two(3).requires_grad_()
    with begun(lambda *_: None, torch.rand(3), weight) as (_, _, inputs):
        gradient: Any = object()
        x, w = inputs.described({inputs.plan.descs[1]: (gradient, (0,))})
    assert (x.gradient, x.reach, x.requires_grad, len(x.specs)) == (None, (), False, 1)
    assert w.gradient is gradient and (w.reach, w.requires_grad, len(w.specs)) == ((0,), True, 2)
