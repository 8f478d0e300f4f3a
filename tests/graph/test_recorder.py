"""What a recorded graph says of its nodes, and which real tensors get into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import MetaTensor, Spec, trace_joint
from subclass_aot.descriptors import PlainInput, PlainOutput, Tangent
from subclass_aot.errors import MutationError, TraceError, UnknownTensorError
from subclass_aot.graph import Recorder, remove_mutations


def nodes_of(trace: Any, op: str) -> list[Any]:
    return [n for n in trace.graph_module.graph.nodes if n.op == op]


def test_one_tensor_is_one_constant() -> None:
    table, other = torch.arange(3.0), torch.arange(3.0)
    trace = trace_joint(lambda x, table=table, other=other: x * table + table.sin() + other, torch.ones(3))
    constants = dict(trace.graph_module.named_buffers())
    assert len(nodes_of(trace, "get_attr")) == len(constants) == 2
    assert [c.data_ptr() for c in constants.values()] == [table.data_ptr(), other.data_ptr()]
    assert torch.equal(trace.graph_module(torch.ones(3))[0], table + table.sin() + other)


def test_a_tensor_that_is_an_argument_too_is_the_argument() -> None:
    x = torch.ones(3)
    trace = trace_joint(lambda y: y + x, x)
    assert not nodes_of(trace, "get_attr")
    assert torch.equal(trace.graph_module(torch.full((3,), 5.0))[0], torch.full((3,), 10.0))


@pytest.mark.parametrize("what", [nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True)])
def test_a_tensor_that_wants_a_gradient_must_be_an_argument(what: torch.Tensor) -> None:
    def program(x: torch.Tensor, what: torch.Tensor = what) -> torch.Tensor:
        return x * what  # the line

    with pytest.raises(TraceError) as caught:
        trace_joint(program, torch.ones(3))
    message = str(caught.value)
    assert message.startswith("A tensor that requires grad is used by the traced function without being an argument")
    assert f"{__file__}:" in message and "return x * what  # the line" in message
    assert ("nn.Parameter of shape [3]" in message) == isinstance(what, nn.Parameter)
    with torch.no_grad():
        assert trace_joint(program, torch.ones(3)).graph_module(torch.ones(3))[0].sum() == 3
    assert trace_joint(lambda x, what=what: x * what.detach(), torch.ones(3))


@pytest.mark.parametrize(
    "write", [lambda t, x: t.add_(x), lambda t, x: t[1:].copy_(x[1:]), lambda t, x: torch.add(x, 1, out=t)]
)
def test_a_write_into_a_found_tensor_is_an_error(write: Any) -> None:
    kept = torch.zeros(3)

    def program(x: torch.Tensor, kept: torch.Tensor = kept) -> torch.Tensor:
        write(kept, x)
        return x * 2

    with pytest.raises(MutationError, match="writes into a tensor that is not an argument of it") as caught:
        trace_joint(program, torch.ones(3))
    assert f"{__file__}:" in str(caught.value) and "[3], float32, cpu" in str(caught.value)
    assert torch.equal(kept, torch.zeros(3))


def test_tensors_without_data_of_an_earlier_trace() -> None:
    for foreign in (MetaTensor(torch.ones(3)),):
        with pytest.raises(TraceError, match="belongs to no running trace, or to another one") as caught:
            trace_joint(lambda x, foreign=foreign: x + foreign, torch.ones(3))
        assert "lambda x, foreign=foreign: x + foreign" in str(caught.value)


def test_nodes_say_what_and_where_they_are() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin()  # deep

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = inner(x) * y  # product
        return z.max(1)  # largest

    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(3, dtype=torch.float64)
    trace = trace_joint(program, x, y)
    for node in trace.graph_module.graph.nodes:
        if node.op == "output":
            continue
        assert node.meta["partitioner_tag"] in ("is_forward", "is_backward")
        assert isinstance(node.meta["stack_trace"], str)
        val = node.meta["val"]
        if isinstance(val, tuple):
            assert all(type(v) is MetaTensor for v in val)
        else:
            assert type(val) is MetaTensor and type(node.meta["spec"]) is Spec and val.spec is node.meta["spec"]
    forward, backward = {}, {}
    for node in nodes_of(trace, "call_function"):
        (forward if node.meta["partitioner_tag"] == "is_forward" else backward)[node.name] = node.meta["stack_trace"]
    assert forward["sin"].splitlines()[-1].endswith("return x.sin()  # deep")
    assert "in program" in forward["sin"] and "in inner" in forward["sin"]
    assert forward["mul"].splitlines()[-1].endswith("# product")
    assert any(text.endswith("# largest") for text in forward.values())
    assert backward["cos"].splitlines()[-1].endswith("# deep"), "the forward line that this gradient belongs to"
    named = {text.splitlines()[-1].rsplit("# ")[-1] for text in backward.values() if text}
    assert named == {"deep", "product", "largest"}


SPEC = Spec.of(torch.ones(3))


def recorded(program: Callable[[MetaTensor], Any]) -> tuple[Recorder, Any]:
    recorder = Recorder()
    with recorder:
        return recorder, program(recorder.placeholder("primals_1", SPEC, PlainInput("args[0]", 0)))


def gone_backward(forward: Recorder, program: Callable[[MetaTensor], Any]) -> tuple[Recorder, Any]:
    fork = forward.fork()
    fork.phase = "backward"
    with fork:
        return fork, program(fork.placeholder("tangents_1", SPEC, Tangent(PlainOutput(0))))


def finished(recorder: Recorder, result: Any) -> list[tuple[str, list[str]]]:
    """The nodes of the graph in the end, each with what it reads."""
    graph = remove_mutations(recorder, {PlainOutput(0): recorder.node_of(result)}, []).graph
    graph.lint()
    return [(node.name, [source.name for source in node.all_input_nodes]) for node in graph.nodes]


def test_several_backwards_of_one_forward_do_not_see_each_other() -> None:
    forward, y = recorded(lambda x: x.sin() * x)
    start = [("primals_1", []), ("tangents_1", []), ("sin", ["primals_1"]), ("mul", ["sin", "primals_1"])]
    first, one = gone_backward(forward, lambda tangent: tangent.cos() + y)
    second, other = gone_backward(forward, lambda tangent: tangent.exp() + tangent)
    assert finished(first, one) == [*start, ("cos", ["tangents_1"]), ("add", ["cos", "mul"])]
    assert finished(second, other) == [*start, ("exp", ["tangents_1"]), ("add_1", ["exp", "tangents_1"])]
    assert finished(forward, y) == [start[0], *start[2:]]
    assert finished(first, one) == [*start, ("cos", ["tangents_1"]), ("add", ["cos", "mul"])], "it stays as it is"
    with pytest.raises(UnknownTensorError), second:
        one.neg()
    with pytest.raises(UnknownTensorError), forward:
        one.neg()


def test_what_one_backward_writes_is_not_written_for_others() -> None:
    forward, (kept, _) = recorded(lambda x: (torch.zeros(3), x))
    first, _ = gone_backward(forward, lambda tangent: kept.add_(tangent))
    second, _ = gone_backward(forward, torch.sin)
    assert first.mutations and not second.mutations and not forward.mutations
    table = torch.arange(3.0)
    third, _ = gone_backward(forward, lambda tangent: tangent + table)
    assert (
        list(third.listeners.real_tensors.constants) == ["_constant0"] and not forward.listeners.real_tensors.constants
    )


def test_values_that_only_another_backward_has_written_are_known() -> None:
    literal = torch.ones(3)
    forward, made = recorded(lambda _: torch.ops.aten.lift_fresh_copy.default(literal).add_(1))
    gone_backward(forward, lambda tangent: made.add_(tangent))
    gone_backward(forward, lambda tangent: made.mul_(2))
    last, known = gone_backward(forward, lambda _: made.add_(1).sum().item())
    assert known == 9 and last.mutations


def test_a_draw_of_another_backward_is_not_repeated() -> None:
    def draws_twice(tangent: MetaTensor) -> Any:
        torch.manual_seed(0)
        torch.rand_like(tangent)
        torch.manual_seed(0)
        return torch.rand_like(tangent)

    forward, _ = recorded(torch.sin)
    with forward.listeners.draws.kept():
        first, second = gone_backward(forward, draws_twice), gone_backward(forward, draws_twice)
    assert finished(*first)[3:] == [("rand_like", ["tangents_1"]), ("clone_default", ["rand_like"])]
    assert finished(*second)[3:] == [("rand_like_1", ["tangents_1"]), ("clone_default_1", ["rand_like_1"])]
