"""Compilers by hand, boxed or not, and what is said of those that do not do what they should."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import functorch.compile
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from subclass_aot import Spec, TwoTensor, aot_compile, compile_joint, export_forward, load, trace_joint
from subclass_aot.errors import CompilerResultError
from subclass_aot.testing import difference
from tests.plain_subclasses import Tag


def program(x: Any, y: Any) -> Any:
    z = x.sin()  # which both results need: they go backward together
    return (z * y).sum(), z @ y


def squares(x: Any) -> Any:
    return (x.sin() * x).cos()


def ruin(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """Compiles, and leaves nothing of the graph."""
    own = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    output = graph.graph.output_node()
    output.args = ((None,) * len(output.args[0]),)  # type: ignore[arg-type]
    graph.graph.eliminate_dead_code()
    for node in graph.graph.nodes:
        node.meta.clear()
    graph.meta.clear()
    graph.recompile()
    return own


def arguments() -> tuple[Any, Any]:
    return TwoTensor(torch.rand(2, 2), torch.rand(2, 2)).requires_grad_(), torch.rand(2, 2, requires_grad=True)


def module_of(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return graph


def method_of(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return graph.forward


def boxed_function(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    def run(flat: list[Any]) -> Any:
        given = list(flat)
        flat.clear()  # a boxed function may empty its list
        return graph(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def flagged(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return functorch.compile.make_boxed_func(graph.forward)


def flagged_as_unboxed(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    def run(*given: Any) -> Any:
        return graph(*given)

    run._boxed_call = False  # type: ignore[attr-defined]
    return run


def returns_a_list(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return lambda *given: list(graph(*given))


def closure(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    def run(*given: Any) -> Any:
        return graph(*given)

    return run


def one_by_one(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    names = ", ".join(node.name for node in graph.graph.find_nodes(op="placeholder"))
    return eval(f"lambda {names}: graph({names})", {"graph": graph})


def partial_of(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return functools.partial(lambda graph, *given: graph(*given), graph)


def partial_of_boxed(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """A partial has not the flag of what it calls."""
    return functools.partial(lambda make, *given: make(list(given)), functorch.compile.make_boxed_func(graph.forward))


def interpreter(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return fx.Interpreter(graph).run


def compiled_by_torch(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return torch.compile(lambda *given: graph(*given), backend="eager")


class Compiled:
    def __init__(self, graph: fx.GraphModule, inputs: list[Any]) -> None:
        self.graph = graph

    def __call__(self, *given: Any) -> Any:
        return self.graph(*given)


class CompiledBoxed(Compiled):
    _boxed_call = True

    def __call__(self, given: list[Any]) -> Any:
        return self.graph(*given)


COMPILERS: list[Any] = [
    "eager", module_of, method_of, boxed_function, flagged, flagged_as_unboxed, returns_a_list, Compiled, CompiledBoxed,
    closure, one_by_one, partial_of, partial_of_boxed, interpreter, compiled_by_torch,
    functorch.compile.nop, functorch.compile.make_boxed_compiler(method_of), functools.partial(module_of),
    lambda graph, inputs: graph.eval(),
]  # fmt: skip


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("both", [False, True])
def test_what_a_compiler_may_return(compiler: Any, both: bool) -> None:
    args = arguments()
    compiled = aot_compile(program, fw_compiler=compiler, bw_compiler="eager" if not both else None)
    expected, got = program(*args), compiled(*args)
    for a, b in zip(expected, got, strict=True):
        assert not difference(a, b)
    gradients = [torch.autograd.grad(r[0].sum() + r[1].sum(), args) for r in (expected, got)]
    for a, b in zip(*gradients, strict=True):
        assert not difference(a, b)


def test_one_tensor_is_the_only_output() -> None:
    """As in AOTAutograd; a `ScriptFunction` returns what was traced."""

    def alone(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        return lambda *given: graph(*given)[0]

    def alone_in_a_list(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        return functorch.compile.make_boxed_func(lambda *given: graph(*given)[0])

    x = torch.rand(1, 3)  # of one row, which would be taken for the output
    for compiler in (alone, alone_in_a_list):
        assert aot_compile(torch.sin, fw_compiler=compiler)(x).equal(x.sin())


@pytest.mark.parametrize("which, name, count", [("fw", "forward", 3), ("bw", "backward", 8)])
def test_a_function_that_cannot_be_called_with_the_inputs(which: str, name: str, count: int) -> None:
    options: Any = {"bw_compiler": "eager", f"{which}_compiler": lambda graph, inputs: lambda args: graph(*args)}
    with pytest.raises(CompilerResultError) as caught:
        sum(t.sum() for t in aot_compile(program, **options)(*arguments())).backward()
    text = str(caught.value)
    assert f"The {name} compiler returned a function that cannot be called with the inputs of its graph." in text
    assert f"Inputs:   {count}\n" in text
    assert "`function._boxed_call = True`" in text
    boxed: Any = lambda *, args: ()  # noqa: E731
    boxed._boxed_call = True
    with pytest.raises(CompilerResultError, match="cannot be called with the inputs of its graph"):
        aot_compile(torch.sin, fw_compiler=lambda graph, inputs: boxed)(torch.ones(2))


def test_compilers_are_given_graphs_of_dense_tensors_and_fake_inputs() -> None:
    seen = []

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        assert isinstance(graph, fx.GraphModule) and len(inputs) == len(placeholders)
        for x, node in zip(inputs, placeholders, strict=True):
            assert type(x) is FakeTensor and x is node.meta["val"] and not x.requires_grad
            assert Spec.of(x) is node.meta["spec"]
        context = torch._guards.TracingContext.get()
        assert context.fake_mode is torch._guards.detect_fake_mode(inputs) is inputs[0].fake_mode
        graph.graph.lint()
        seen.append(len(inputs))
        return graph

    x, y = arguments()
    first, second = aot_compile(program, fw_compiler=compiler)(x, y)
    assert len(seen) == 1, "backward is compiled when it is needed"
    (first.sum() + second.sum()).backward()
    assert len(seen) == 2 and seen[0] == 3


def test_a_compiler_may_change_its_graph(tmp_path: Path) -> None:
    """What was recorded stays as it was for whoever reads it later: files and exports."""
    x = torch.randn(3, requires_grad=True)
    expected = squares(x)
    compiled = aot_compile(squares, fw_compiler=ruin)
    compiled(x).sum().backward()
    assert compiled(x).equal(expected)
    assert export_forward(compiled, (x,)).module()(x).equal(expected)
    compiled.save(tmp_path / "ruined.sa")
    loaded = load(tmp_path / "ruined.sa", squares, fw_compiler="eager", trust=True)
    y = x.detach().requires_grad_()
    loaded(y).sum().backward()
    assert loaded(y).equal(expected) and y.grad is not None and y.grad.equal(x.grad)


def test_no_backward_without_gradients() -> None:
    calls = []

    def forbidden(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        calls.append(graph)
        return graph

    with torch.no_grad():
        aot_compile(program, bw_compiler=forbidden)(*arguments())
    aot_compile(program, bw_compiler=forbidden)(*[a.detach() for a in arguments()])
    assert not calls


def broken(which: str, returned: Any) -> dict[str, Any]:
    """Options of `aot_compile` with a compiler whose function ends in `returned(outputs)`."""
    return {f"{which}_compiler": lambda graph, inputs: lambda *given: returned(tuple(graph(*given)))}


@pytest.mark.parametrize(
    "returned, got",
    [
        (lambda out: out[:-1], "gave {n-1} outputs; its graph has {n}"),
        (lambda out: (*out, None), "gave {n+1} outputs; its graph has {n}"),
        (lambda out: (), "gave 0 outputs; its graph has {n}"),
        (lambda out: None, "gave a NoneType instead of a sequence of outputs; its graph has {n}"),
    ],
)
@pytest.mark.parametrize("which, name, n", [("fw", "forward", None), ("bw", "backward", 4)])
def test_wrong_number_of_outputs(returned: Any, got: str, which: str, name: str, n: int | None) -> None:
    args = arguments()
    before = [a.detach().clone() for a in args]
    compiled = aot_compile(program, **{"bw_compiler": "eager", **broken(which, returned)})
    with pytest.raises(CompilerResultError) as caught:
        sum(t.sum() for t in compiled(*args)).backward()
    if n is None:
        n = int(str(caught.value).split("its graph has ")[1].split(".")[0])
    expected = got.replace("{n-1}", str(n - 1)).replace("{n+1}", str(n + 1)).replace("{n}", str(n))
    assert f"The function that the {name} compiler returned {expected}." in str(caught.value)
    for a, b in zip(args, before, strict=True):
        assert a.grad is None and not difference(a.detach(), b)


@pytest.mark.parametrize("which, name", [("fw", "forward"), ("bw", "backward")])
@pytest.mark.parametrize("returned", [None, 3, "code", (torch.ones(1),)])
def test_a_compiler_that_returns_no_function(which: str, name: str, returned: Any) -> None:
    options: Any = {"bw_compiler": "eager", f"{which}_compiler": lambda graph, inputs: returned}
    kind = type(returned).__name__
    with pytest.raises(CompilerResultError, match=f"The {name} compiler returned a {kind}, which cannot be called"):
        sum(t.sum() for t in aot_compile(program, **options)(*arguments())).backward()
    compiled = aot_compile(program, **options, lazy_backward=False)
    with pytest.raises(CompilerResultError, match=f"The {name} compiler returned a {kind}, which cannot be called"):
        compiled(*arguments())
    assert compiled.recompiles == [] and "nothing was compiled yet" in compiled.explain()


def test_errors_of_compilers_come_through_and_leave_nothing_behind() -> None:
    failures = [ZeroDivisionError("on purpose")]

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        if failures:
            raise failures.pop()
        return graph

    compiled, args = aot_compile(program, fw_compiler=compiler), arguments()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        compiled(*args)
    for a, b in zip(compiled(*args), program(*args), strict=True):
        assert not difference(a, b)
    assert compiled.recompiles == []


def test_a_partitioner_that_loses_inputs() -> None:
    def loses(joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int) -> Any:
        forward, backward = functorch.compile.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
        unused = [n for n in forward.graph.nodes if n.op == "placeholder" and not n.users]
        forward.graph.erase_node(unused[0])
        return forward, backward

    compiled = aot_compile(lambda x, y: x.sin(), partition_fn=loses)
    with pytest.raises(CompilerResultError, match="has 1 inputs, but the call has 2 leaves"):
        compiled(torch.ones(2, requires_grad=True), torch.ones(2))


def retraced(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    """Compiles by proxies, which see functions of torch as tensors of a class do."""
    return fx.Transformer(fx.symbolic_trace(graph)).transform()


def retracing(joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int) -> Any:
    graphs = functorch.compile.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
    for graph in graphs:
        retraced(graph, [])
    return graphs


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("cls", [torch.Tensor, Tag, TwoTensor])
def test_compilers_and_partitioners_may_trace_with_proxies(cls: Any, dynamic: bool, lazy: bool) -> None:
    def given() -> Any:
        x = torch.linspace(0, 1, 6).reshape(2, 3)
        return (TwoTensor(x, x + 1) if cls is TwoTensor else x.as_subclass(cls)).requires_grad_()

    def program(x: Any) -> Any:
        return x.sin() * 2 + x.sum()

    compiled = aot_compile(program, fw_compiler=retraced, partition_fn=retracing, dynamic=dynamic, lazy_backward=lazy)
    (x, y), results = (given(), given()), []
    for run, value in ((program, x), (compiled, y)):
        results.append(run(value))
        with torch._C.DisableTorchFunctionSubclass():
            results[-1].sum().backward()
    assert not difference(*results) and not difference(x.grad, y.grad)
    assert not difference(program(x.detach()), compiled(y.detach()))


@pytest.mark.filterwarnings("ignore")  # of Dynamo
def test_so_they_may_by_the_other_doors() -> None:
    for x in torch.ones(2, 3, requires_grad=True), torch.ones(2, 3).as_subclass(Tag).requires_grad_():
        torch.compiler.reset()
        options = {"fw_compiler": retraced, "partition_fn": retracing}
        y = torch.compile(squares, backend="subclass_aot", options=options)(x)
        assert not difference(squares(x), y)
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert not difference(torch.autograd.grad(squares(x).sum(), x)[0], grad)
        run = compile_joint(trace_joint(squares, x), fw_compiler=retraced, partition_fn=retracing)
        assert not difference(squares(x), run(x))
