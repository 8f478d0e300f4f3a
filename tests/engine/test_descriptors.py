"""Every input and output of a graph says what it is, in the words of AOTAutograd."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn

import subclass_aot as sa
from subclass_aot.engine.descriptors import (
    AutogradMutation,
    BackwardMutation,
    BufferInput,
    Descriptor,
    Gradient,
    HeldInput,
    Inner,
    InnerSize,
    InnerStride,
    InputDescriptor,
    Intermediate,
    IntermediateBase,
    LiveInput,
    LookedAt,
    MutatedInput,
    Number,
    OutputDescriptor,
    ParamInput,
    PlainInput,
    PlainOutput,
    PutByBackward,
    SavedForBackward,
    SyntheticBase,
    Tangent,
    ViewBase,
    descriptor_of,
)
from subclass_aot.tensors import TwoTensor

EVERY: dict[Descriptor, str] = {
    PlainInput("args[0]", 0): "PlainAOTInput(idx=0)",
    HeldInput("args[0].cache.key", 1): "HeldAOTInput(path='args[0].cache.key', number=1)",
    ParamInput("self.a", "a"): "ParamAOTInput(target='a')",
    BufferInput("self.b", "b"): "BufferAOTInput(target='b')",
    ViewBase(PlainInput("x", 1)): "ViewBaseAOTInput(base_of=PlainAOTInput(idx=1))",
    SyntheticBase((PlainInput("x", 1), PlainInput("y", 2))): "SyntheticBaseAOTInput(base_of=PlainAOTInput(idx=1))",
    Tangent(PlainOutput(2)): "TangentAOTInput(output=PlainAOTOutput(idx=2))",
    LiveInput(PlainInput("x", 1)): "LiveAOTInput(base=PlainAOTInput(idx=1))",
    Inner(PlainInput("x", 1), "a"): "SubclassGetAttrAOTInput(base=PlainAOTInput(idx=1), attr='a')",
    Inner(PlainOutput(1), "a"): "SubclassGetAttrAOTOutput(base=PlainAOTOutput(idx=1), attr='a')",
    InnerSize(PlainInput("x", 1), 0): "SubclassSizeAOTInput(base=PlainAOTInput(idx=1), idx=0)",
    InnerStride(PlainOutput(1), 0): "SubclassStrideAOTOutput(base=PlainAOTOutput(idx=1), idx=0)",
    PlainOutput(0): "PlainAOTOutput(idx=0)",
    MutatedInput(PlainInput("x", 1)): "InputMutationAOTOutput(mutated_input=PlainAOTInput(idx=1))",
    AutogradMutation(PlainInput("x", 1)): "InputMutationAOTOutput(mutated_input=PlainAOTInput(idx=1))",
    BackwardMutation(PlainInput("x", 1)): "InputMutationAOTOutput(mutated_input=PlainAOTInput(idx=1))",
    IntermediateBase(0, PlainOutput(1)): "IntermediateBaseAOTOutput(base_of=PlainAOTOutput(idx=1))",
    Gradient(PlainInput("x", 1)): "GradAOTOutput(grad_of=PlainAOTInput(idx=1))",
    Gradient(PlainOutput(1)): "DummyAOTOutput(idx=1)",
    SavedForBackward(3): "SavedForBackwardsAOTOutput(idx=3)",
    Number("s0", 1): "DummyAOTOutput(idx=1)",
    LookedAt(1): "DummyAOTOutput(idx=1)",
    PutByBackward(1): "DummyAOTOutput(idx=1)",
    Intermediate("mul"): "DummyAOTOutput(idx=0)",
}


@pytest.mark.parametrize("desc, expected", EVERY.items(), ids=[type(desc).__name__ for desc in EVERY])
def test_each_has_a_counterpart_in_torch(desc: Descriptor, expected: str) -> None:
    assert repr(desc.to_torch()) == expected


def test_none_is_left_out() -> None:
    def below(cls: type) -> set[type]:
        return {x for sub in cls.__subclasses__() for x in (sub, *below(sub))}

    names = {cls.__name__ for cls in below(Descriptor)}  # a class with slots is made twice
    bases = {"InputDescriptor", "OutputDescriptor", "_Part", "_Written"}
    assert names - bases == {type(desc).__name__ for desc in EVERY}


def test_those_of_one_thing_are_equal_and_all_print_differently() -> None:
    assert Inner(Gradient(ParamInput("w", "w")), "codes") == Inner(Gradient(ParamInput("w", "w")), "codes")
    assert len(set(map(str, EVERY))) == len(EVERY)


def inputs_of(graph: fx.GraphModule) -> list[Any]:
    return [descriptor_of(node) for node in graph.graph.find_nodes(op="placeholder")]


def outputs_of(graph: fx.GraphModule) -> tuple[Any, ...]:
    output = graph.graph.output_node()
    found: tuple[Any, ...] = descriptor_of(output)
    assert len(found) == len(output.args[0]), "one for each output"  # type: ignore[arg-type]
    return found


def torchs_of(graph: fx.GraphModule) -> tuple[list[Any], list[Any]]:
    """What stands where AOTAutograd puts its own descriptors."""
    inputs = [node.meta["desc"] for node in graph.graph.find_nodes(op="placeholder")]
    return inputs, [desc for desc in graph.graph.output_node().meta["desc"] if desc is not None]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        return self.norm(y).relu(), y.sin()


def views_of_one(x: Any) -> Any:
    y = x * x
    return y.view(-1), y.t()


def test_they_are_those_of_aotautograd() -> None:
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    module, x = Model(), torch.rand(4, 3, requires_grad=True)
    with contextlib.ExitStack() as stack:
        torchs = aot_export_joint_with_descriptors(stack, module, (x,)).graph_module
        theirs = torchs_of(torchs)
    ours = torchs_of(sa.trace_joint(module, x).graph_module)
    for mine, other in zip(ours, theirs, strict=True):
        assert set(mine) == set(other) and len(mine) == len(other)


def writes_a_view(x: Any) -> Any:
    x[0].mul_(2)
    return x * x


def writes_two_views_of_one(x: Any, y: Any) -> Any:
    x.add_(1)
    return x[:2] * y


def made_leaf(x: Any) -> Any:
    leaf = x[0].requires_grad_()
    return leaf, leaf * leaf


def shares_memory() -> tuple[Any, ...]:
    base = torch.rand(4)
    return base[:3], base[1:3]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], set[type]]] = {
    "module": (Model(), lambda: (torch.rand(4, 3),), {ParamInput, BufferInput, Gradient}),
    "views": (views_of_one, lambda: (torch.rand(4, 3, requires_grad=True),), {IntermediateBase}),
    "wrapper": (
        lambda w, x: x @ w,
        lambda: (TwoTensor(torch.rand(3, 2), torch.rand(3, 2)).requires_grad_(), torch.rand(2, 3)),
        {Inner, PlainInput},
    ),
    "write": (writes_a_view, lambda: (torch.rand(2, 2, requires_grad=True) * 1,), {AutogradMutation}),
    "base": (writes_two_views_of_one, shares_memory, {SyntheticBase}),
    "leaf": (made_leaf, lambda: (torch.rand(2, 2),), {Gradient}),
    "look": (
        lambda x: x.long() // 3 if x.sum() > 0 else x,  # which may fail, and waits for the check: two parts
        lambda: (torch.ones(2),),
        {LookedAt, Intermediate},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("torchs_partitioner", [False, True], ids=["own", "torch"])
def test_every_graph_has_them(name: str, torchs_partitioner: bool) -> None:
    from functorch.compile import min_cut_rematerialization_partition

    program, make, expected = PROGRAMS[name]
    graphs: list[fx.GraphModule] = []

    def note(graph: fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return lambda *inputs: graph(*inputs)

    partition = min_cut_rematerialization_partition if torchs_partitioner else None
    compiled = sa.aot_compile(program, fw_compiler=note, partition_fn=partition, lazy_backward=False)
    with contextlib.suppress(RuntimeError):
        compiled(*make())
    found: set[type] = set()
    for graph in graphs:
        assert all(isinstance(desc, InputDescriptor) for desc in inputs_of(graph))
        assert all(isinstance(desc, OutputDescriptor) for desc in outputs_of(graph))
        assert len(set(inputs_of(graph))) == len(inputs_of(graph)), "each input is another thing"
        found |= {type(desc) for desc in (*inputs_of(graph), *outputs_of(graph))}
    if any(isinstance(desc, Tangent) for desc in inputs_of(graphs[-1])):
        forward, backward = graphs
        saved = {desc for desc in outputs_of(forward) if isinstance(desc, SavedForBackward)}
        assert saved == {desc for desc in inputs_of(backward) if isinstance(desc, SavedForBackward)} != set()
        kinds = {type(desc) for desc in inputs_of(backward)}
        assert kinds <= {SavedForBackward, Tangent, Inner, LiveInput}
        assert all(desc.is_backward for desc in outputs_of(backward))
    assert expected <= found


def test_tensors_at_keys_that_are_tensors_are_told_apart() -> None:
    """An optimizer has one state for each parameter, and a parameter has no name as a key."""
    weights = [torch.rand(2, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    graphs: list[fx.GraphModule] = []

    def note(graph: fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return lambda *inputs: graph(*inputs)

    @torch.no_grad()
    def step(gradients: list[torch.Tensor]) -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimizer.step()

    compiled = sa.aot_compile(step, fw_compiler=note)
    for _ in range(2):
        compiled([torch.ones(2)] * 3)
    held = [desc for desc in inputs_of(graphs[-1]) if isinstance(desc, HeldInput)]
    assert len(set(map(str, held))) == len(set(held)) == len(held)


def test_symbolic_sizes() -> None:
    x = TwoTensor(torch.rand(4, 3), torch.rand(4, 3)).requires_grad_()
    sa.mark_dynamic(x, 0)
    joint = sa.trace_joint(lambda x: x.sum(1) * x.shape[0], x).graph_module
    assert {"args[0].a", "args[0].b", "args[0].size(0)"} <= set(map(str, inputs_of(joint)))
    assert any(isinstance(desc, Number) for desc in outputs_of(joint))


def test_a_write_in_the_joint_graph() -> None:
    joint = sa.trace_joint(lambda x: x.mul_(2), TwoTensor(torch.ones(2), torch.ones(2))).graph_module
    assert list(map(str, outputs_of(joint))) == ["new value of args[0].a", "new value of args[0].b"]
