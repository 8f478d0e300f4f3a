"""Compilers: by name, any callable of AOTAutograd's kind, and what is said of those that break the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, nop
from torch import fx

from subclass_aot import MetaTensor, TwoTensor, aot_compile
from subclass_aot.errors import CompilerResultError, SubclassAotError


def returns_forward(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return graph.forward


def returns_module(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return graph


def returns_boxed(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return make_boxed_func(graph.forward)


def returns_plain_function(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return lambda inputs: graph(*inputs)


def empties_its_inputs(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    def run(inputs: list[Any]) -> Any:
        mine = list(inputs)
        inputs.clear()
        return graph(*mine)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def returns_list(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return lambda inputs: list(graph(*inputs))


def checks_its_examples(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    assert all(type(x) is MetaTensor for x in inputs)
    assert [x.spec for x in inputs] == [n.meta["spec"] for n in placeholders]
    graph(*[torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in inputs])
    return graph.forward


COMPILERS = {f.__name__: f for f in (
    returns_forward, returns_module, returns_boxed, returns_plain_function, empties_its_inputs, returns_list,
    checks_its_examples, nop,
)} | {"eager": "eager"}  # fmt: skip


def program(x: Any, w: Any) -> Any:
    with torch.no_grad():
        x.mul_(2)
    return (x @ w).sin(), w * 1, x


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["dense", "wrapper"])
def test_all_kinds_of_compilers(name: str, wrapped: bool) -> None:
    def arguments() -> tuple[Any, Any]:
        torch.manual_seed(2)
        x = TwoTensor(torch.rand(2, 3), torch.rand(2, 3)) if wrapped else torch.rand(2, 3)
        return x, torch.rand(3, 3, requires_grad=True)

    compiled = aot_compile(program, fw_compiler=COMPILERS[name])
    for _ in range(2):
        (x, w), (y, v) = arguments(), arguments()
        expected, got = program(x, w), compiled(y, v)
        for out in (expected, got):
            out[0].backward(torch.ones_like(out[0]))
        for a, b in zip([*expected, x, w.grad], [*got, y, v.grad], strict=True):
            torch.testing.assert_close(getattr(a, "b", a), getattr(b, "b", b))


def test_forward_and_backward_compilers() -> None:
    seen: list[tuple[str, set[Any]]] = []

    def compiler(which: str) -> Any:
        def compile(graph: fx.GraphModule, inputs: list[Any]) -> Any:
            seen.append((which, {n.target for n in graph.graph.nodes if n.op == "call_function"}))
            return graph.forward

        return compile

    compiled = aot_compile(lambda x: x.sin(), fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    compiled(torch.rand(3))
    compiled(torch.rand(3, requires_grad=True))
    aten = torch.ops.aten
    assert [which for which, _ in seen] == ["forward", "forward", "backward"]
    assert aten.sin.default in seen[0][1] and aten.cos.default in seen[2][1]


def test_decompositions() -> None:
    def gelu(x: Any, approximate: str = "none") -> Any:
        return x * torch.sigmoid(1.702 * x)

    seen: list[Any] = []

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        seen.extend(n.target for n in graph.graph.nodes if n.op == "call_function")
        return graph.forward

    gelu_op = torch.ops.aten.gelu.default
    compiled = aot_compile(torch.nn.functional.gelu, fw_compiler=compiler, decompositions={gelu_op: gelu})
    x = torch.rand(4)
    torch.testing.assert_close(compiled(x), gelu(x))
    wrapped = compiled(TwoTensor(x, -x))
    torch.testing.assert_close(wrapped.b, gelu(-x))
    assert gelu_op not in seen


def test_torchs_own_decompositions() -> None:
    from torch._decomp import core_aten_decompositions

    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    compiled = aot_compile(module, decompositions=core_aten_decompositions())
    x = torch.rand(5, 3)
    before = module[1].running_mean.clone()
    got = compiled(x)
    module[1].running_mean.copy_(before)
    torch.testing.assert_close(got, module(x))


def test_unknown_name() -> None:
    with pytest.raises(SubclassAotError, match="no compiler named 'indcutor'") as error:
        aot_compile(lambda x: x, fw_compiler="indcutor")
    assert "eager, inductor" in str(error.value)


@pytest.mark.parametrize("bad", [None, 3, []])
def test_a_compiler_that_returns_no_function(bad: Any) -> None:
    with pytest.raises(CompilerResultError, match=r"forward compiler returned a \w+, which cannot be called"):
        aot_compile(lambda x: x * 2, fw_compiler=lambda graph, inputs: bad)(torch.rand(2))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda out: out[:-1], "gave 1 outputs; its graph has 2"),
        (lambda out: [*out, out[0]], "gave 3 outputs; its graph has 2"),
        (lambda out: out[0], "outputs"),
        (lambda out: None, "NoneType instead of a sequence"),
    ],
    ids=["too few", "too many", "a tensor", "nothing"],
)
def test_a_forward_with_the_wrong_outputs(result: Any, said: str) -> None:
    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        return lambda inputs: result(graph(*inputs))

    with pytest.raises(CompilerResultError, match=said) as error:
        aot_compile(lambda x: (x.sin(), x.cos()), fw_compiler=compiler)(torch.rand(3))
    assert "forward compiler" in str(error.value)


def test_a_backward_with_too_few_outputs() -> None:
    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        return lambda inputs: graph(*inputs)[:-1]

    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    out = aot_compile(lambda x, y: x * y, bw_compiler=compiler)(x, y)
    with pytest.raises(CompilerResultError, match="backward compiler returned gave 1 outputs; its graph has 2"):
        out.sum().backward()
    assert x.grad is None and y.grad is None


def test_an_error_in_the_compiler_leaves_nothing_behind() -> None:
    fail = [True]

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        if fail:
            raise ZeroDivisionError("in the compiler")
        return graph.forward

    x = torch.ones(3)
    compiled = aot_compile(lambda x: x.mul_(2), fw_compiler=compiler)
    with pytest.raises(ZeroDivisionError):
        compiled(x)
    assert torch.equal(x, torch.ones(3)) and x._version == 0
    fail.clear()
    compiled(x)
    assert torch.equal(x, torch.full((3,), 2.0)) and not compiled.recompiles
