"""The generated code of one signature: which functions it is made of, and which calls it takes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.call import Arguments, flatten
from subclass_aot.engine.compilers import BACKENDS, compiled
from subclass_aot.engine.facts import Scope, facts_of, global_state
from subclass_aot.engine.guards import MISS, GuardOptions
from subclass_aot.engine.runtime import CompiledGraphs, Entry, backward_inputs, make_entry, split
from subclass_aot.engine.trace import Attempt, trace_arguments

pytestmark = pytest.mark.usefixtures("either_way")


def entry_of(function: Any, *args: Any) -> Entry:
    """What runs for the signature of a call."""
    arguments = Arguments.of(function, args, {})
    state = global_state()
    trace = trace_arguments(function, Attempt(arguments))
    graphs = split(trace, None)
    backend = BACKENDS["eager"]
    forward = compiled(backend, graphs.forward, [], False)
    backward = None
    if graphs.backward is not None:
        backward = compiled(backend, graphs.backward, backward_inputs(graphs, graphs.backward), True)
    guard = GuardOptions(facts_of(arguments, state, Scope.of(trace.signature)))
    return make_entry(arguments, trace.signature, CompiledGraphs(graphs, forward, backward), guard)


def run(entry: Entry, *args: Any, **options: Any) -> Any:
    return entry.call(args, {}, *flatten((args, {})), global_state(), **options)


def leaf() -> torch.Tensor:
    return torch.rand(2, requires_grad=True)


def test_without_gradients_it_is_one_function() -> None:
    entry = entry_of(lambda x: x * 2, torch.rand(2))
    assert list(entry.sources) == ["call"]
    x = torch.rand(2)
    assert torch.equal(run(entry, x), x * 2) and not run(entry, x).requires_grad


def test_with_gradients_there_are_three() -> None:
    entry = entry_of(lambda x: x * 2, leaf())
    assert sorted(entry.sources) == ["backward", "call", "forward"]
    for name, text in entry.sources.items():
        assert text.startswith(f"def {name}("), text
    x = leaf()
    run(entry, x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    "other",
    [torch.rand(3), torch.rand(2, dtype=torch.float64), leaf(), TwoTensor(torch.rand(2), torch.rand(2)), 1.0],
    ids=["size", "dtype", "requires_grad", "class", "no tensor"],
)
def test_a_call_that_does_not_fit_is_missed(other: Any) -> None:
    entry = entry_of(lambda x: x * 2, torch.rand(2))
    assert run(entry, other) is MISS


def test_a_call_can_be_asked_about_without_running_it() -> None:
    entry = entry_of(lambda x: x.mul_(2), torch.rand(2))
    x = torch.ones(2)
    assert run(entry, x, check_only=True) is not MISS and x.tolist() == [1, 1]
    assert run(entry, torch.ones(3), check_only=True) is MISS


def test_other_modes_than_those_of_the_trace_are_missed() -> None:
    entry = entry_of(lambda x: x * 2, leaf())
    with torch.no_grad():
        assert run(entry, leaf()) is MISS


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_autograd_is_left_as_the_program_leaves_it(before: bool, after: bool) -> None:
    def program(x: Any) -> Any:
        with torch.enable_grad():
            y = x * 2
        torch.set_grad_enabled(after)
        return y

    with torch.set_grad_enabled(before):
        entry = entry_of(program, leaf())
        torch.set_grad_enabled(before)
        result = run(entry, leaf())
        assert torch.is_grad_enabled() is after and result.requires_grad


@pytest.mark.parametrize("kind", [None, list, OrderedDict])
def test_plain_structures_are_read_as_they_came(kind: Any) -> None:
    x = torch.rand(2)
    given: Any = x if kind is None else [x] if kind is list else OrderedDict({0: x})
    entry = entry_of(lambda given: (given if kind is None else given[0]) * 2, given)
    assert entry.is_flat is (kind is None) and entry.takes_arguments is (kind is not OrderedDict)
    assert torch.equal(run(entry, given), x * 2)
