"""What the user is told of signatures: the reason of a recompile, `explain()` and `source`.

That each fact compiles once more is tested with the guards.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile
from subclass_aot.base import hooks
from subclass_aot.testing import difference


def model() -> nn.Sequential:
    last = nn.LayerNorm(2, bias=False)
    return nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)), last)


def add_parameter(m: Any) -> None:
    m[0].register_parameter("extra", nn.Parameter(torch.ones(2)))


def add_first_parameter(m: Any) -> None:
    m[1][0].register_parameter("extra", nn.Parameter(torch.ones(2)))


def add_first_buffer(m: Any) -> None:
    m.register_buffer("extra", torch.ones(2))


def add_first_child(m: Any) -> None:
    m[1][0].add_module("extra", nn.Linear(1, 1))


def give_bias(m: Any) -> None:
    m[2].bias = nn.Parameter(torch.ones(2))


def swap_child(m: Any) -> None:
    m[0] = nn.Linear(3, 3, bias=False)


CHANGES: dict[Callable[[Any], None], str] = {
    add_parameter: "self.0.extra: absent before, Parameter .* now",
    add_first_parameter: "self.1.0.extra: absent before, Parameter .* now",
    add_first_buffer: "self.extra: absent before, Tensor .* now",
    add_first_child: "self.1.0.extra.training: absent before, True now",
    give_bias: "self.2.bias: absent before, Parameter .* now",
    swap_child: "self.0.bias: Parameter .* before, absent now",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_module_that_holds_more_or_less_than_before(change: Callable[[Any], None]) -> None:
    module, x = model(), torch.randn(4, 3)
    compiled = aot_compile(module)

    def agree() -> None:
        torch.manual_seed(1)
        expected = module(x)
        torch.manual_seed(1)
        assert not difference(expected, compiled(x))

    agree()
    change(module)
    agree()
    agree()
    assert len(compiled.recompiles) == 1 and re.search(CHANGES[change], compiled.recompiles[0]), compiled.recompiles


def test_a_child_replaced_by_one_alike_is_the_one_that_runs() -> None:
    module, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(4, 3)
    compiled = aot_compile(module)
    compiled(x)
    module[0] = nn.Linear(3, 2)
    assert not difference(module(x), compiled(x))


def test_weights_tied_later_have_one_gradient() -> None:
    module, x = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)), torch.randn(4, 3)
    compiled = aot_compile(module)
    compiled(x)
    module[1].weight = module[0].weight
    compiled(x).sum().backward()
    gradient, module[0].weight.grad = module[0].weight.grad, None
    module(x).sum().backward()
    torch.testing.assert_close(gradient, module[0].weight.grad)
    assert compiled.recompiles == [
        "self.1.weight: Parameter float32[3, 3] on cpu requires_grad before, the same tensor as self.0.weight now"
    ]


def test_the_reason_is_told_of_the_nearest_signature() -> None:
    compiled = aot_compile(lambda x, y, factor: x.sum() + y.sum() * factor)
    compiled(torch.ones(2), torch.ones(4), 1)
    compiled(torch.ones(2, 3), torch.ones(4), 2)
    compiled(torch.ones(2, 3), torch.ones(5), 2)
    assert compiled.recompiles[1] == "args[1]: Tensor float32[4] on cpu before, Tensor float32[5] on cpu now"
    assert len(compiled.recompiles) == 2 and compiled.recompiles[0].count("; ") == 1


def test_before_the_first_call() -> None:
    compiled = aot_compile(torch.sin)
    assert compiled.explain() == "sin: nothing was compiled yet, the first call compiles."
    assert compiled.source.startswith("# Nothing was compiled yet")
    assert compiled.recompiles == []


def step(x: Any, weight: Any, bias: Any) -> Any:
    """Docs."""
    with torch.no_grad():
        bias.add_(1)
    y = x @ weight.t() + bias
    return y, y, x, x[0], x.shape[0], weight


def test_explain_says_what_was_compiled_for_whom_and_why() -> None:
    compiled = aot_compile(step)
    weight = TwoTensor(torch.ones(5, 3), torch.ones(5, 3)).requires_grad_()
    compiled(torch.ones(2, 3), weight, torch.ones(5))
    compiled(torch.ones(4, 3), weight, torch.ones(5))
    lines = compiled.explain().splitlines()
    assert lines[0] == "step: 2 signatures, the one used last first"
    first, second = lines.index(f"signature 1: {compiled.recompiles[0]}"), lines.index("signature 2: first call")
    section = [line.strip() for line in lines[first + 1 : second - 1]]
    assert section[section.index("inputs") + 1 : section.index("outputs")] == [
        "args[0]: Tensor = Spec([s0, 3], float32, cpu)",
        "args[1]: TwoTensor = Spec([5, 3], float32, cpu), Spec([5, 3], float32, cpu) requires_grad",
        "args[2]: Tensor = Spec([5], float32, cpu)",
        "args[0].size(0) is s0",
        "guard: s0 >= 2",
    ]
    outputs = section[section.index("outputs") + 1 :]
    assert outputs[:7] == [
        "0: TwoTensor requires_grad", "1: the same object as output[0]", "2: the same object as args[0]",
        "3: a view of args[0]", "4: a size", "5: the same object as args[1]", "written in the graph: args[2]",
    ]  # fmt: skip
    assert re.fullmatch(r"forward graph: \d+ operators, saves \d+ tensors for backward", outputs[7])
    assert re.fullmatch(r"backward graph: \d+ operators", outputs[8])


def test_a_write_that_autograd_sees_is_explained() -> None:
    compiled = aot_compile(lambda x: x.mul_(2))
    compiled(TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_() * 1)
    assert "written after the graph, where autograd sees it: args[0]" in compiled.explain()


def test_source_is_python_that_the_debugger_shows() -> None:
    compiled = aot_compile(nn.Linear(3, 2))
    compiled(torch.ones(1, 3)).sum().backward()
    functions = [f for f in ast.parse(compiled.source).body if isinstance(f, ast.FunctionDef)]
    assert [f.name for f in functions] == ["call", *["read"] * hooks.one_call_pays, "forward", "backward"]
    assert all(ast.get_docstring(f) for f in functions)
    call = compiled._specializations.latest.entry.call
    assert inspect.getsource(call).strip() == ast.get_source_segment(compiled.source, functions[0])
    assert "call" in linecache.getline(call.__code__.co_filename, 1)
    with torch.no_grad():
        compiled(torch.ones(1, 3))
    assert "def backward" not in compiled.source, "the source is that of the signature used last"
    compiled(torch.ones(1, 3))
    assert "def backward" in compiled.source


def test_a_compiled_function_looks_like_the_function() -> None:
    compiled = aot_compile(step)
    assert compiled.__name__ == "step" and compiled.__doc__ == "Docs." and compiled.fn is step
    assert list(inspect.signature(compiled).parameters) == ["x", "weight", "bias"]
    module = nn.Linear(2, 2)
    assert aot_compile(module).fn is module


def test_frozen_weights_do_not_depend_on_their_values() -> None:
    compiled, x = aot_compile(nn.functional.linear), torch.randn(2, 3)
    for _ in range(3):
        weight = Int8Weight.from_float(torch.randn(5, 3))
        assert not difference(nn.functional.linear(x, weight), compiled(x, weight))
    assert compiled.recompiles == []


def test_an_argument_may_have_any_name() -> None:
    def program(x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return x * others["self"] + others["args"]

    x = torch.ones(2)
    torch.testing.assert_close(aot_compile(program)(x, self=x * 2, args=x * 3), x * 5)
