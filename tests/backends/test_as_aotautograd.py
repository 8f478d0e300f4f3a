"""What a compiler is handed is what AOTAutograd hands it: the same attributes of nodes, the same kind of module."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import functorch.compile
import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.graph_manipulation import get_size_of_all_nodes
from torch.fx.passes.operator_support import OpSupports

import subclass_aot as sa

aten = torch.ops.aten
SILU = {aten.silu.default: lambda x: x * torch.sigmoid(x)}
_KEYS = ("original_aten", "tensor_meta")

PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "pointwise": (lambda x: (x * 2).sin(), [torch.ones(3)]),
    "several": (lambda x: x.max(0)[0] + x.split(1)[1][0], [torch.rand(2, 3)]),
    "decomposed": (lambda x: nn.functional.silu(x).cos(), [torch.rand(2, 3)]),
    "train": (lambda x, w: (x @ w.t()).tanh().sum(), [torch.rand(2, 3), torch.rand(4, 3, requires_grad=True)]),
    "decomposed in training": (lambda x: nn.functional.silu(x).sum(), [torch.rand(3, requires_grad=True)]),
    "writes": (lambda x, y: x.add_(1) * y.t(), [torch.rand(3, 3), torch.rand(3, 3)]),
    "strides": (lambda x: x.permute(1, 0, 2).contiguous(memory_format=torch.contiguous_format), [torch.rand(2, 3, 1)]),
}


def said(noted: dict[str, list[Any]]) -> Callable[..., Any]:
    """Returns a compiler that notes what nodes have."""

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        for node in graph.graph.nodes:
            if node.op == "call_function":
                noted.setdefault(str(node.target), []).append(tuple(str(node.meta.get(key)) for key in _KEYS))
            elif node.op == "placeholder" and isinstance(node.meta["val"], torch.Tensor):
                assert node.meta["tensor_meta"].shape == node.meta["val"].shape
        return functorch.compile.make_boxed_func(graph.forward)

    return compiler


@pytest.mark.parametrize("name", PROGRAMS)
def test_nodes_have_what_torchs_have(name: str) -> None:
    fn, args = PROGRAMS[name]
    ours, theirs = dict[str, list[Any]](), dict[str, list[Any]]()
    for compile_, noted in (sa.aot_compile, ours), (functorch.compile.aot_function, theirs):
        compiled: Any = compile_(fn, fw_compiler=said(noted), bw_compiler=said(noted), decompositions=SILU)
        result = compiled(*[x.detach().clone().requires_grad_(x.requires_grad) for x in args])
        if result.requires_grad:
            result.sum().backward()
    shared = ours.keys() & theirs.keys()
    assert shared >= {target for target in ours if not target.startswith("aten.detach")} - {"aten.copy_.default"}
    for target in shared:
        (originals, tensors), (their_originals, their_tensors) = (
            map(set, zip(*x[target], strict=True)) for x in (ours, theirs)
        )
        assert tensors & their_tensors and their_originals - {"None"} <= originals, target
        assert "None" not in originals, target


def test_a_wrapper_and_changing_sizes() -> None:
    noted: dict[str, list[Any]] = {}
    compiled = sa.aot_compile(lambda s: s.sin() * s.shape[0], fw_compiler=said(noted), dynamic=True)
    compiled(sa.TwoTensor(torch.rand(3), torch.rand(3)))
    assert {meta[0] for meta in noted["aten.sin.default"]} == {"aten.sin.default"}
    assert all("shape=torch.Size([s" in meta[1] for meta in noted["aten.sin.default"])


def test_a_graph_behind_dynamo_has_them() -> None:
    noted: dict[str, list[Any]] = {}
    torch.compile(lambda x: x.sin(), backend="subclass_aot", options={"fw_compiler": said(noted)})(torch.rand(3))
    [(original, tensor)] = noted["aten.sin.default"]
    assert original == "aten.sin.default" and "shape=torch.Size([3])" in tensor


def test_tuples_are_made_when_they_are_read() -> None:
    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        nodes = graph.graph.find_nodes(op="call_function", target=aten.sin.default)
        raw = [dict.get(node.meta, "tensor_meta") for node in nodes]
        assert [type(x) for x in raw] == [object] * 2
        nodes[1].meta["val"] = torch.empty(7, device="meta")
        assert nodes[0].meta["tensor_meta"].dtype is torch.float32 and nodes[1].meta.get("tensor_meta").shape == (7,)
        return graph

    sa.aot_compile(lambda x: x.sin().sin(), fw_compiler=compiler)(torch.ones(3))


def test_passes_of_torchs_that_read_them() -> None:
    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        get_size_of_all_nodes(graph)
        sin = next(iter(graph.graph.find_nodes(op="call_function", target=aten.sin.default)))
        assert not OpSupports.decline_if_input_dtype(torch.float32).is_node_supported(dict(graph.named_modules()), sin)
        return graph

    sa.aot_compile(lambda x: x.cos().sin(), fw_compiler=compiler)(torch.ones(3))


def _scripted(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    for node in graph.graph.nodes:
        node.target = getattr(node.target, "overloadpacket", node.target)  # TorchScript chooses the overload itself
    graph.recompile()
    return torch.jit.script(graph)


@pytest.mark.parametrize("compiler", [_scripted, functorch.compile.ts_compile], ids=["script", "ts_compile"])
@pytest.mark.parametrize("door", ["aot_compile", "dynamo"])
def test_torchscript_takes_graphs(compiler: Callable[..., Any], door: str) -> None:
    layer, x = nn.Linear(3, 2), torch.rand(2, 3)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return layer(x).relu().sum()

    options = {"fw_compiler": compiler}
    compiled: Any
    if door == "aot_compile":
        compiled = sa.aot_compile(fn, fw_compiler=compiler)
    else:
        compiled = torch.compile(fn, backend="subclass_aot", options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that TorchScript will go
        compiled(x).backward()
    gradient, layer.weight.grad = layer.weight.grad, None
    fn(x).backward()
    torch.testing.assert_close(gradient, layer.weight.grad)


def test_the_module_is_a_plain_one() -> None:
    modules: list[type] = []

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        modules.extend(type(graph).__mro__)
        assert isinstance(graph.code, str) and not hasattr(graph, "_needs_recompile")
        return graph

    sa.aot_compile(torch.sin, fw_compiler=compiler)(torch.ones(2))
    assert fx.GraphModule in modules and not any("Lazy" in cls.__name__ for cls in modules)


_READ: dict[str, Callable[[Any], Any]] = {
    "code": lambda graph: graph.code,
    "forward": lambda graph: graph.forward.__func__.__code__,
    "of the class": lambda graph: type(graph).forward.__code__,
    "text": str,
    "recompiled": lambda graph: graph.recompile().src,
    "lines": lambda graph: graph._lineno_map,
}


@pytest.mark.parametrize("read", _READ)
def test_code_is_there_when_it_is_read(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most compilers read nodes, and need no code of the graph."""
    written: list[fx.Graph] = []
    write = fx.Graph.python_code
    monkeypatch.setattr(fx.Graph, "python_code", lambda self, *a, **k: written.append(self) or write(self, *a, **k))

    def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        before = len(written)
        again = copy.deepcopy(graph)
        assert len(written) == before
        of_another = _READ[read](fx.GraphModule(graph, graph.graph))
        found = [_READ[read](each) for each in (graph, again)]
        assert type(found[0]) is type(of_another) and (not isinstance(of_another, str) or "sin" in found[1])
        torch.testing.assert_close(again(*[torch.ones(2)] * len(inputs)), graph(*[torch.ones(2)] * len(inputs)))
        return graph

    x = torch.ones(2, requires_grad=True)
    sa.aot_compile(lambda x: x.sin().sin(), fw_compiler=compiler)(x).sum().backward()
    assert x.grad is not None


def test_decompositions_may_be_a_function() -> None:
    noted: dict[str, list[Any]] = {}
    sa.aot_compile(nn.functional.silu, fw_compiler=said(noted), decompositions=lambda: SILU)(torch.ones(2))
    assert set(noted) == {"aten.sigmoid.default", "aten.mul.Tensor"}


@pytest.mark.parametrize("door", ["aot_compile", "dynamo", "aot_autograd"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_inference_compiler(door: str, mode: Any) -> None:
    torch.compiler.reset()  # else it ends at its limit of recompiles
    calls: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def compiler(graph: fx.GraphModule, inputs: list[Any]) -> Any:
            calls.append(name)
            return functorch.compile.make_boxed_func(graph.forward)

        return compiler

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    options: Any = {f"{kind}_compiler": noting(kind) for kind in ("fw", "bw", "inference")}
    compiled: Any
    if door == "aot_compile":
        compiled = sa.aot_compile(fn, **options)
    else:
        backend = aot_autograd(**options) if door == "aot_autograd" else "subclass_aot"
        compiled = torch.compile(fn, backend=backend, **({"options": options} if door == "dynamo" else {}))
    with mode():
        result = compiled(torch.ones(2, requires_grad=True))
        assert compiled(torch.ones(3)).shape == (3,)
    if result.requires_grad:
        result.sum().backward()
    trained = ["fw", "inference", "bw"] if door != "aot_autograd" else ["fw", "bw", "inference"]
    assert sorted(calls) == sorted(trained if mode is torch.enable_grad else ["inference"] * calls.count("inference"))
    assert calls.count("inference") >= 1
