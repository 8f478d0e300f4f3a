"""The joint graph: its names, what stands on its nodes, and what it computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from subclass_aot import Int8Weight, MetaTensor, Spec, TwoTensor, aot_compile, trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.outputs import SameAsInput, SameAsOutput, Value, ViewOfInput
from subclass_aot.engine.trace import Attempt, trace_arguments
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.testing import difference
from tests.constants import out_of_sight

aten: Any = torch.ops.aten


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def placeholders(trace: Any) -> list[fx.Node]:
    return [n for n in trace.graph_module.graph.nodes if n.op == "placeholder"]


def operators(trace: Any) -> list[Any]:
    return [n.target for n in trace.graph_module.graph.nodes if n.op == "call_function"]


def loss(x: Any, w: Any) -> Any:
    hidden = x @ w
    return hidden.sin().sum(), hidden


def test_names_and_meanings() -> None:
    trace = trace_joint(loss, two(2, 3).requires_grad_(), torch.rand(3, 4, requires_grad=True))
    found = {n.name: str(descriptor_of(n)) for n in placeholders(trace)}
    assert list(found) == ["primals_1", "primals_2", "primals_3", *(f"tangents_{i}" for i in range(1, 5))]
    assert [found[f"primals_{i}"] for i in (1, 2, 3)] == ["args[0].a", "args[0].b", "args[1]"]
    assert found["tangents_1"] == "tangent of output[0].a"
    output = trace.graph_module.graph.output_node()
    assert len(descriptor_of(output)) == len(output.args[0])
    assert str(descriptor_of(output)[-1]).startswith("gradient of args[1]")


def test_module_meanings() -> None:
    trace = trace_joint(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)), torch.rand(4, 3))
    meanings = [str(descriptor_of(n)) for n in placeholders(trace)]
    assert {"args[0]", "self.0.weight", "self.0.bias", "self.1.running_mean"} <= set(meanings)


def test_every_node_says_what_it_is() -> None:
    trace = trace_joint(loss, two(2, 3).requires_grad_(), torch.rand(3, 4, requires_grad=True))
    phases = []
    for node in trace.graph_module.graph.nodes:
        if node.op == "output":
            continue
        phases.append(node.meta["partitioner_tag"])
        val = node.meta["val"]
        assert type(val) is FakeTensor and Spec.of(val) is node.meta["spec"]
    assert phases.index("is_backward") > 0 and set(phases) == {"is_forward", "is_backward"}


def test_stack_traces_point_to_the_users_line() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        z = y.exp()  # the line of exp
        return z.sum()

    trace = trace_joint(program, torch.rand(3, requires_grad=True))
    lines = {n.target: n.meta["stack_trace"] for n in trace.graph_module.graph.nodes if n.op == "call_function"}
    assert "the line of exp" in lines[aten.exp.default] and "test_joint.py" in lines[aten.exp.default]
    assert "y = x * 2" in lines[aten.mul.Tensor] or "the line of exp" in lines[aten.mul.Tensor]
    backward = [n for n in trace.graph_module.graph.nodes if n.meta.get("partitioner_tag") == "is_backward"]
    assert any("the line of exp" in n.meta["stack_trace"] for n in backward if n.op == "call_function")
    assert all("subclass_aot/engine/trace" not in n.meta["stack_trace"] for n in backward)


def test_the_graph_computes_forward_and_gradients() -> None:
    x, w = two(2, 3).requires_grad_(), torch.rand(3, 4, requires_grad=True)
    trace = trace_joint(loss, x, w)
    total, hidden = loss(x, w)
    torch.autograd.backward([total, hidden], [torch.ones_like(total), torch.ones_like(hidden)])
    leaves = [x.a, x.b, w.detach()]
    out = trace.graph_module(*leaves, torch.ones(()), torch.ones(()), torch.ones(2, 4), torch.ones(2, 4))
    expected = [total.a, total.b, hidden.a, hidden.b, x.grad.a, x.grad.b]
    for a, b in zip(expected, out, strict=False):
        torch.testing.assert_close(a, b)
    assert type(w.grad) is TwoTensor
    torch.testing.assert_close([w.grad.a, w.grad.b], list(out[6:]))


def test_what_the_outputs_are() -> None:
    def program(x: Any, y: Any) -> Any:
        z = x * y
        return {"product": z, "again": z, "input": x, "view": y.t(), "number": 3, "none": None, "inner": x.a}

    trace = trace_joint(program, two(2, 2), torch.rand(2, 2))
    kinds = [type(o) for o in trace.signature.outputs]
    found = dict(zip(["product", "again", "input", "view", "inner"], kinds, strict=True))
    assert found["product"] is Value and found["again"] is SameAsOutput
    assert (found["input"], found["view"], found["inner"]) == (SameAsInput, ViewOfInput, Value)


def test_the_call_is_untouched() -> None:
    x = two(2, 2).requires_grad_()
    before = TwoTensor(x.a.clone(), x.b.clone()).requires_grad_()
    inner = (x.a, x.b)
    module = torch.nn.BatchNorm1d(2)
    parameters = {name: (p, p.clone()) for name, p in module.named_parameters()}
    buffers = {name: (b, b.clone()) for name, b in module.named_buffers()}

    def program(x: Any, module: Any) -> Any:
        with torch.no_grad():
            x.mul_(2)
        return module(x.a)

    trace_joint(program, x, module)
    assert not difference(before, x) and x.a is inner[0] and x.b is inner[1] and x._version == 0
    assert all(p is module.get_parameter(name) and torch.equal(p, old) for name, (p, old) in parameters.items())
    assert all(b is module.get_buffer(name) and torch.equal(b, old) for name, (b, old) in buffers.items())


def test_mutation_is_gone_from_the_graph() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            x.t()[0].mul_(2)
        return x + 1

    trace = trace_joint(program, two(2, 3))
    assert trace.signature.mutations.in_graph == (0, 1)
    assert not any(op._schema.is_mutable for op in operators(trace) if hasattr(op, "_schema"))
    a, b = torch.rand(2, 3), torch.rand(2, 3)
    new_a, new_b, out_a, _ = trace.graph_module(a, b)
    a2 = a.clone()
    a2.t()[0].mul_(2)
    torch.testing.assert_close([new_a, out_a], [a2, a2 + 1])
    assert not torch.equal(a, a2) and new_b.shape == b.shape


def test_only_the_written_leaf_is_written() -> None:
    def program(x: Any) -> Any:
        x.a.mul_(2)
        return x + 1

    assert trace_joint(program, two(2, 3)).signature.mutations.in_graph == (0,)


def test_no_functionalization_without_mutation() -> None:
    """The graph is the one pass itself: a view stays the operator the program used."""
    trace = trace_joint(lambda x: x.transpose(0, 1).unsqueeze(0) * 2, torch.rand(2, 3))
    assert operators(trace) == [aten.transpose.int, aten.unsqueeze.default, aten.mul.Tensor]


def test_real_tensors_become_constants() -> None:
    table = torch.arange(3.0)
    place = out_of_sight(table)
    trace = trace_joint(lambda x: x * place.kept + place.kept, torch.rand(3))
    constants = [n for n in trace.graph_module.graph.nodes if n.op == "get_attr"]
    assert len(constants) == 1
    assert torch.equal(getattr(trace.graph_module, constants[0].target), table)
    literal = trace_joint(lambda x: x + torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))
    torch.testing.assert_close(literal.graph_module(torch.zeros(3))[0], torch.tensor([1.0, 2.0, 3.0]))


def test_a_known_number_is_not_data_dependent() -> None:
    trace = trace_joint(lambda x: x * torch.tensor(3).item(), torch.ones(2))
    torch.testing.assert_close(trace.graph_module(torch.ones(2))[0], torch.full((2,), 3.0))


def test_wrapper_constants() -> None:
    weight = Int8Weight.from_float(torch.rand(4, 3))
    place = out_of_sight(weight)
    trace = trace_joint(lambda x: torch.nn.functional.linear(x, place.kept), torch.rand(2, 3))
    x = torch.rand(2, 3)
    torch.testing.assert_close(trace.graph_module(x)[0], torch.nn.functional.linear(x, weight))


def test_a_parameter_that_is_no_argument() -> None:
    place = out_of_sight(torch.rand(3, requires_grad=True))
    with pytest.raises(TraceError, match="requires grad is used by the traced function without being an argument") as e:
        trace_joint(lambda x: x * place.kept, torch.rand(3))
    assert "test_joint.py" in str(e.value) and "pass it as an argument" in str(e.value)
    with torch.no_grad():
        trace_joint(lambda x: x * place.kept, torch.rand(3))
    trace_joint(lambda x: x * place.kept.detach(), torch.rand(3))


def test_a_wrapper_parameter_that_is_no_argument() -> None:
    place = out_of_sight(two(3, 3).requires_grad_())
    for x in (torch.rand(3), torch.rand(3, requires_grad=True)):
        with pytest.raises(TraceError, match=r"depends on a TwoTensor of shape \[3, 3\] that requires grad"):
            trace_joint(lambda x: x * place.kept, x)
    with torch.no_grad():
        trace_joint(lambda x: x * place.kept, torch.rand(3))
    trace_joint(lambda x: x * place.kept.detach(), torch.rand(3, requires_grad=True))


def test_a_leaf_that_the_function_makes_beside_a_constant() -> None:
    """It is a wrapper, as the constant whose gradient would be lost is in the test before."""
    table = torch.rand(3)

    def program(x: Any) -> Any:
        start = x.detach().requires_grad_()
        return start * 2 + table, start

    joint = trace_joint(program, two(3))
    assert [str(leaf.output) for leaf in joint.signature.made_leaves] == ["output[1]"]


def test_a_leaf_that_the_function_makes_and_forgets() -> None:
    """Nobody could read its gradient, in eager mode either; some models make one for checkpointing."""
    table = torch.rand(3)

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        start = x[None]
        start.requires_grad_()
        return start * weight + table

    x, weight = torch.rand(3), torch.rand(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(aot_compile(program)(x, weight).sum(), weight)
    torch.testing.assert_close(gradient, x)


def test_a_write_into_a_constant() -> None:
    table = torch.zeros(3)
    place = out_of_sight(table)
    with pytest.raises(MutationError, match="writes into a tensor that is not an argument") as error:
        trace_joint(lambda x: place.kept.add_(x), torch.ones(3))
    assert "aten.add_.Tensor" in str(error.value) and not table.any()


def test_traces_inside_each_other() -> None:
    def program(x: Any) -> Any:
        inner = trace_joint(lambda y: y.cos(), torch.ones(2))
        assert operators(inner) == [aten.cos.default]
        return x.sin()

    assert operators(trace_joint(program, torch.ones(3))) == [aten.sin.default]


def test_meta_arguments() -> None:
    """A trace needs no data at all."""
    x = MetaTensor(torch.empty(10**6, 10**6, device="meta")).requires_grad_()
    trace = trace_joint(lambda x: (x @ x).sum(), x)
    assert [n.meta["spec"].size for n in placeholders(trace)] == [(10**6, 10**6), ()]


def test_no_gradient_no_backward() -> None:
    assert not trace_joint(lambda x: x * 2, torch.rand(2)).signature.needs_backward
    with torch.no_grad():
        assert not trace_joint(lambda x: x * 2, torch.rand(2, requires_grad=True)).signature.needs_backward
    assert not trace_joint(lambda x: x > 1, torch.rand(2, requires_grad=True)).signature.needs_backward


def test_dead_code_is_dropped_and_draws_are_not() -> None:
    def program(x: Any) -> Any:
        x.exp()
        torch.rand(3)
        return x * 2

    kept = operators(trace_joint(program, torch.ones(3)))
    assert aten.exp.default not in kept and aten.rand.default in kept


def test_backward_once_more_for_other_tangents() -> None:
    """The forward part is the same, node by node, also where the graph was cleaned and made without writes."""

    def program(x: Any, y: Any) -> Any:
        y.mul_(2)
        return (x * y).sin().detach_() * x

    call = Arguments.of(program, (TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_(), torch.ones(3)), {})
    trace = trace_arguments(program, Attempt(call))
    assert trace.with_tangents is not None
    dense = trace.with_tangents({0: torch.ones(3)})
    again = trace.with_tangents({0: None})

    def forward(trace: Any) -> list[str]:
        nodes = trace.graph_module.graph.nodes
        return [n.format_node() for n in nodes if n.meta.get("partitioner_tag") == "is_forward"]

    def inputs(trace: Any) -> list[str]:
        return [n.name for n in trace.graph_module.graph.find_nodes(op="placeholder")]

    assert forward(trace) == forward(dense) == forward(again)
    assert inputs(trace) == inputs(again) == ["primals_1", "primals_2", "primals_3", "tangents_1", "tangents_2"]
    assert inputs(dense) == ["primals_1", "primals_2", "primals_3", "tangents_1"]
    assert [x.gradient for x in again.signature.inputs] == [x.gradient for x in trace.signature.inputs]
    without = trace_arguments(torch.sin, Attempt(Arguments.of(torch.sin, (torch.ones(3),), {})))
    assert without.with_tangents is None
