"""What a call pays to find out that it is like the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.leaves import tree
from benchmarks.row import Result, Target
from benchmarks.torch_side import TwoTensor
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.engine.call import flatten
from subclass_aot.engine.facts import global_state
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

COUNTS = (1, 10, 100)
CLASSES = {"subclass_aot.TwoTensor": sa.TwoTensor, "torch's TwoTensor": TwoTensor}
A_QUARTER = Target.faster(4, "signature check against all overhead of a call, 100 wrappers")
_CHECK, _CALL, _GRAPH, _OVERHEAD = "check", "call", "graph", "all overhead of the call"
_KEPT, _PASSED, _DENSE = "weights of a module", "wrappers that are passed", "dense weights of a module"


def run(budget: Budget, counts: tuple[int, ...] = COUNTS) -> Iterator[Result]:
    """Measures the check against the call without its graph, then the check of frozen weights, for each of them."""
    for count in counts:
        for name, cls in CLASSES.items():
            times = _overhead(cls, count, budget)
            target = A_QUARTER if count == 100 else None
            yield Result("flatten and check", f"{count} wrappers, {name}", times, _CHECK, {_OVERHEAD: target})
    for name, cls in CLASSES.items():
        sides = {
            _KEPT: _weights(cls, counts[-1]),
            _PASSED: _passed(cls, counts[-1]),
            _DENSE: _weights(None, counts[-1]),
        }
        against = dict.fromkeys((_PASSED, _DENSE))
        yield Result(
            "check, per weight", f"{counts[-1]} frozen weights, {name}", compare(sides, budget), _KEPT, against
        )


def _overhead(cls: Any, count: int, budget: Budget) -> Comparison:
    """The check, beside what is left of a call of `[x * 2 for x in xs]` when the time of its graph is taken off."""
    xs = tuple(tree(cls, 1) for _ in range(count))
    compiled = sa.aot_compile(_double)
    compiled(*xs)
    graph = write_graph(compiled._specializations.latest.graphs.forward)
    leaves = [leaf for x in xs for leaf in (x.a, x.b)]
    sides = {_CHECK: _check(compiled, xs), _CALL: Side(compiled, xs), _GRAPH: Side(_run, (graph, leaves))}
    times = compare(sides, budget).microseconds
    overhead = tuple(call - graph for call, graph in zip(times[_CALL], times[_GRAPH], strict=True))
    return Comparison({**times, _OVERHEAD: overhead})


def _run(graph: Callable[..., Any], leaves: list[Tensor]) -> Any:
    return graph(list(leaves))


def _double(*xs: Tensor) -> list[Tensor]:
    return [x * 2 for x in xs]


def _check(compiled: Any, args: tuple[Any, ...], units: int = 1) -> Side:
    """The check of a call of a compiled function, and nothing after it."""
    entry = compiled._specializations.latest.entry
    taken_apart = (None, None) if entry.takes_arguments else flatten((args, {}))
    call = (args, {}, *taken_apart, global_state())
    assert entry.call(*call, True) is None
    return Side(entry.call, (*call, True), units=units)


class _Weights(nn.Module):
    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(w, requires_grad=False) for w in weights)

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def _weights(cls: Any, count: int) -> Side:
    """The check of a module with frozen weights, dense ones if `cls` is None."""
    x = torch.ones(4, 4)
    compiled = sa.aot_compile(_Weights([torch.ones(4, 4) if cls is None else tree(cls, 1) for _ in range(count)]))
    compiled(x)
    return _check(compiled, (x,), count)


def _passed(cls: Any, count: int) -> Side:
    """The check of as many wrappers that are arguments."""
    xs = (torch.ones(4, 4), *(tree(cls, 1) for _ in range(count)))
    compiled = sa.aot_compile(_first)
    compiled(*xs)
    return _check(compiled, xs, count)


def _first(x: Tensor, *others: Tensor) -> Tensor:
    return x * 2
