"""What a program computes from constants alone is known while it is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import errors
from subclass_aot.engine.compile import aot_compile
from subclass_aot.engine.graph.listeners import constants
from subclass_aot.engine.graph.listeners.constants import Earlier, known_value


def keeps() -> torch.Tensor:
    return torch.tensor([True, False, True])


def filled() -> torch.Tensor:
    mask = torch.zeros(3, dtype=torch.bool)
    mask[1:].fill_(True)
    return mask


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * torch.tensor(3).item(),
        lambda x: x * (torch.arange(4).sum() - 1).item(),
        lambda x: x * 2 if torch.equal(torch.ones(2), torch.full((2,), 1.0)) else x,
        lambda x: x[keeps()],
        lambda x: x[:, keeps()] * 2,
        lambda x: x[filled()],
        lambda x: x[torch.ones(3, 3).triu_().bool(), 1:],
        lambda x: x[keeps(), torch.tensor([2, 0])],
        lambda x: x.masked_select(filled()),
        lambda x: x[torch.nonzero(keeps())[:, 0]],
        lambda x: x * torch.nonzero(keeps()).max().item(),
        lambda x: x[torch.nonzero(keeps())[:, 0].add_(0)] if torch.arange(3)[keeps()].tolist() == [0, 2] else x,
    ],
)
def test_known_values(fn: Callable[..., Any]) -> None:
    def outcome(fn: Callable[..., Any]) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(27.0).view(3, 3, 3).requires_grad_()
        y = fn(x)
        return y, torch.autograd.grad((y * y).sum(), x)[0]

    torch.testing.assert_close(outcome(aot_compile(fn)), outcome(fn))


found = torch.tensor([True, False, True])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x * torch.rand(()).item(),
        lambda x: x * torch.zeros(3).copy_(x).sum().item(),
        lambda x: x[found],
        lambda x: x * found.sum().item(),
    ],
)
def test_unknown_values(fn: Callable[..., Any]) -> None:
    """Inputs, draws, and what was written from them; nor a tensor that the program found, which may change later."""
    with pytest.raises(errors.DataDependentError, match="a traced tensor has none"):
        aot_compile(fn, values="refuse")(torch.ones(3))


def test_counters_that_are_read_between_writes() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        counters = [torch.tensor(0.0), torch.tensor(5.0)]
        read = [float(counter) for counter in counters]
        for _ in range(2):
            torch._foreach_add_(counters, 1)
            read += [float(counter) for counter in counters]
        return x * read[-1], read

    result, read = aot_compile(program)(torch.ones(1))
    assert read == [0, 5, 1, 6, 2, 7]
    assert result == 7


def test_what_is_known_is_the_program_s_to_write() -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.ones.default, ([],))
    numbers = {node: torch.tensor(3.0)}
    value = known_value(node, [node], {}, (), {}, Earlier(numbers, set()))
    assert value is not None
    value.add_(1)
    assert numbers[node] == 3
    fresh: dict[torch.fx.Node, torch.Tensor] = {}
    known_value(node, [node], {}, (), {}, Earlier(fresh, set())).add_(1)  # type: ignore[union-attr]
    assert fresh[node] == 1


def test_a_query_does_not_go_back_to_the_inputs_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.fx.Node] = []
    is_fixed = constants._is_fixed
    monkeypatch.setattr(constants, "_is_fixed", lambda node, nodes: asked.append(node) or is_fixed(node, nodes))
    graph = torch.fx.Graph()
    chain = [graph.placeholder("x")]
    for _ in range(50):
        chain.append(graph.call_function(torch.ops.aten.sin.default, (chain[-1],)))
    earlier = Earlier({}, set())
    for node in chain:
        assert known_value(node, chain, {}, (), {}, earlier) is None
    assert len(asked) == len(chain) == len(earlier.varying)
    one = graph.call_function(torch.ops.aten.ones.default, ([],))
    two = graph.call_function(torch.ops.aten.add.Tensor, (one, one))
    mixed = graph.call_function(torch.ops.aten.add.Tensor, (two, chain[-1]))
    nodes = [*chain, one, two, mixed]
    assert known_value(mixed, nodes, {}, (), {}, earlier) is None
    assert known_value(two, nodes, {}, (), {}, earlier) == 2, "only what led to the input depends on it"
