"""Which real tensors get into a graph, and which values are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from subclass_aot import MetaTensor, aot_compile, trace_joint
from subclass_aot.engine.graph import Recorder
from subclass_aot.errors import MutationError
from subclass_aot.meta import new_leaf
from tests.constants import out_of_sight
from tests.engine.graph.recording import SPEC, gone_backward, raw, recorded


def nodes_of(trace: Any, op: str) -> list[Any]:
    return [n for n in trace.graph_module.graph.nodes if n.op == op]


def test_one_tensor_is_one_constant() -> None:
    table, other = torch.arange(3.0), torch.arange(3.0)
    place, second = out_of_sight(table), out_of_sight(other)
    trace = trace_joint(lambda x: x * place.kept + place.kept.sin() + second.kept, torch.ones(3))
    constants = dict(trace.graph_module.named_buffers())
    assert len(nodes_of(trace, "get_attr")) == len(constants) == 2
    assert [c.data_ptr() for c in constants.values()] == [table.data_ptr(), other.data_ptr()]
    assert torch.equal(trace.graph_module(torch.ones(3))[0], table + table.sin() + other)


def test_a_tensor_that_is_an_argument_too_is_the_argument() -> None:
    x = torch.ones(3)
    trace = trace_joint(lambda y: y + x, x)
    assert not nodes_of(trace, "get_attr")
    assert torch.equal(trace.graph_module(torch.full((3,), 5.0))[0], torch.full((3,), 10.0))


@pytest.mark.parametrize(
    "write", [lambda t, x: t.add_(x), lambda t, x: t[1:].copy_(x[1:]), lambda t, x: torch.add(x, 1, out=t)]
)
def test_a_write_into_a_found_tensor_is_an_error(write: Any) -> None:
    kept = torch.zeros(3)
    place = out_of_sight(kept)

    def program(x: torch.Tensor) -> torch.Tensor:
        write(place.kept, x)
        return x * 2

    with pytest.raises(MutationError, match="writes into a tensor that is not an argument of it") as caught:
        trace_joint(program, torch.ones(3))
    assert f"{__file__}:" in str(caught.value) and "[3], float32, cpu" in str(caught.value)
    assert torch.equal(kept, torch.zeros(3))


def test_a_constant_of_one_backward_is_none_of_others() -> None:
    table = torch.arange(3.0)
    forward, _ = recorded(torch.sin)
    first, _ = gone_backward(forward, lambda tangent: tangent + table)
    second, _ = gone_backward(forward, lambda tangent: (tangent * table, tangent + table))
    constants = [recorder.listeners.real_tensors.constants for recorder in (forward, first, second)]
    assert list(map(list, constants)) == [[], ["_constant0"], ["_constant0"]]
    assert raw(first) == ["sin", "_constant0", "add"] and raw(second) == ["sin", "_constant0_1", "mul", "add_1"]


def test_what_a_leaf_stands_in_for_is_forgotten() -> None:
    table = torch.arange(3.0)
    recorder = Recorder()

    def program(x: MetaTensor) -> None:
        recorder.listeners.real_tensors.stand_in(table, x)
        x + table
        recorder.forget_tensors()
        x + table

    recorded(program, recorder=recorder)
    assert raw(recorder) == ["add", "_constant0", "add_1"]
    assert [n.name for n in recorder.in_order()[1].all_input_nodes] == ["primals_1"]


def test_inputs_that_may_be_read_are_noted_where_they_are() -> None:
    recorder, values = Recorder(), torch.tensor([1.0, 2.0, 3.0])

    def program(x: MetaTensor, y: MetaTensor) -> Any:
        recorder.listeners.real_tensors.let_read(x, values, "args[0]", 7)
        assert recorder.value_of(y) is None and not recorder.listeners.real_tensors.read_values
        return x.sum().item()

    assert recorded(program, SPEC, SPEC, recorder=recorder)[1] == 6
    assert recorder.listeners.real_tensors.read_values == {7: [1, 2, 3]}


def test_inputs_without_data_are_never_read() -> None:
    recorder = Recorder()

    def program(x: MetaTensor) -> Any:
        for without_data in (new_leaf(SPEC), torch.ones(3, device="meta")):
            recorder.listeners.real_tensors.let_read(x, without_data, "args[0]", 0)
        return recorder.value_of(x)

    assert recorded(program, recorder=recorder)[1] is None


def test_values_that_only_another_backward_has_written_are_known() -> None:
    literal = torch.ones(3)
    forward, made = recorded(lambda _: torch.ops.aten.lift_fresh_copy.default(literal).add_(1))
    gone_backward(forward, lambda tangent: made.add_(tangent))
    gone_backward(forward, lambda tangent: made.mul_(2))
    last, known = gone_backward(forward, lambda _: made.add_(1).sum().item())
    assert known == 9 and last.mutations


def at(table: Tensor) -> Tensor:
    """Those rows: what is computed in a trace where the values of the table are the same at each call."""
    return table[torch.arange(table.shape[0])[:, None], torch.arange(3)[None]]


def table(x: Tensor) -> Tensor:
    return at(torch.ones(x.shape[0], 3) * 5)


def written(x: Tensor) -> Tensor:
    weights = torch.ones(3)
    weights[-1] = 0.25
    return x * weights


def tables(x: Tensor) -> Tensor:
    first, last = at(torch.ones(x.shape[0], 3) * 5), at(torch.full((x.shape[0], 3), 7.0))
    return written(x * first) * torch.tensor([1.0, 2.0, 3.0]) + last


ONCE_KNOWN: list[Callable[[Tensor], Tensor]] = [
    lambda x: written(x) * table(x),
    lambda x: written(x) * (at(torch.ones(x.shape[0], 3).bool()) & (x > 0)),
    lambda x: written(table(x)) * torch.tensor([1.0, 2.0, 3.0]) * x,
    tables,
    lambda x: written(x.mul(table(x)).sin()).mul_(torch.tensor(3.0)),
    lambda x: written(x).index_add(0, at(torch.ones(x.shape[0], 3).long())[:, 0], x * torch.tensor(0.5)),
]


@pytest.mark.parametrize("known", [lambda n: n == 2, lambda n: [1, 2, 3][n] == 3])
@pytest.mark.parametrize("program", range(len(ONCE_KNOWN)))
def test_a_size_that_turns_out_to_be_known(program: int, known: Callable[[int], bool]) -> None:
    """What depends on it is known when the graph runs without writes, and was not before: more constants come."""

    def function(x: Tensor) -> Tensor:
        result = ONCE_KNOWN[program](x)
        return result if known(x.shape[0]) else result * 0

    compiled = aot_compile(function, dynamic=True)
    given = [torch.randn(2, 3, requires_grad=True) for _ in range(2)]
    given[1].data.copy_(given[0])
    results = [f(x) for f, x in zip((compiled, function), given, strict=True)]
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(*results, rtol=0, atol=0)
    torch.testing.assert_close(given[0].grad, given[1].grad)
