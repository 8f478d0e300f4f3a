"""What is asked for at `aot_compile` is checked there, and heard where graphs are compiled."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from torch import fx

from subclass_aot import SubclassAotError, aot_compile
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.compilers import BACKENDS
from subclass_aot.engine.options import Options


def test_the_options_are_those_of_aot_compile() -> None:
    own = inspect.signature(Options).parameters
    public = inspect.signature(aot_compile).parameters
    assert {name: p.default for name, p in own.items()} == {n: p.default for n, p in public.items() if n != "fn"}


@pytest.mark.parametrize(
    "options, message",
    [({"values": "look"}, 'neither "check" nor "refuse"'), ({"fw_compiler": "fast"}, "no compiler named 'fast'"),
     ({"bw_compiler": "fast"}, "no compiler named 'fast'"),
     ({"inference_compiler": "fast"}, "no compiler named 'fast'")],
)  # fmt: skip
def test_what_there_is_not_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SubclassAotError, match=message):
        aot_compile(torch.sin, **options)


def test_the_backward_compiler_is_the_forward_one_unless_another_is_named() -> None:
    assert Options("inductor").backward is Options("inductor").forward is not Options("eager").forward
    assert Options("inductor", "eager").backward is Options("eager").forward


def test_decompositions_of_the_user_come_before_those_of_the_compiler() -> None:
    def own(x: torch.Tensor) -> torch.Tensor:
        return x

    assert Options("eager").replaced.keys() <= WRITTEN_OUT.keys()  # which it records as they are
    operator = next(iter(Options("inductor").replaced))
    assert Options("inductor", decompositions={operator: own}).replaced[operator] is own


@pytest.mark.parametrize("lazy", [True, False])
def test_when_backward_is_compiled(lazy: bool) -> None:
    graphs: list[fx.GraphModule] = []

    def note(graph: fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return lambda *inputs: graph(*inputs)

    result = aot_compile(lambda x: (x * x).sum(), fw_compiler=note, lazy_backward=lazy)(
        torch.ones(2, requires_grad=True)
    )
    assert len(graphs) == (1 if lazy else 2)
    result.backward()
    assert len(graphs) == 2


@pytest.mark.parametrize("assumes_nothing", [True, False])
def test_when_backward_with_symbolic_sizes_is_compiled(assumes_nothing: bool) -> None:
    compiled: list[bool] = []
    eager = BACKENDS["eager"]

    def compile(graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> Any:
        compiled.append(is_backward)
        return eager.compile(graph, inputs, is_backward)

    backend = dataclasses.replace(eager, compile=compile, assumes_nothing=assumes_nothing)
    x = torch.rand(3, 4, requires_grad=True)
    result = aot_compile(lambda x: (x * x).sum(), fw_compiler=backend, dynamic=True)(x)
    assert compiled == ([False] if assumes_nothing else [False, True]), "else a guard on sizes would come too late"
    result.backward()
    assert compiled == [False, True]
    assert x.grad is not None and x.grad.equal(2 * x)
