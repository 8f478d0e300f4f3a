"""What compilers are told of inputs that stay in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn

from subclass_aot import QuantAwareWeight, TwoTensor, aot_compile, mark_static_address


def names(graph: fx.GraphModule, static: Any) -> list[str]:
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return [str(inputs[i].meta["desc"]) for i in static]


def told_to() -> tuple[Any, list[list[str]]]:
    """A compiler and what each graph says of its inputs."""
    told: list[list[str]] = []

    def compiler(graph: fx.GraphModule, inputs: Any) -> Any:
        static = graph.meta["static_input_indices"]
        told.append(names(graph, static))
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        assert [i for i, n in enumerate(placeholders) if n.meta["is_static_input"]] == list(static)
        return graph

    return compiler, told


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(QuantAwareWeight(torch.rand(2, 2)))
        self.bias = nn.Parameter(torch.rand(2))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x.sin(), self.weight, self.bias).exp()


def test_forward_and_backward() -> None:
    compiler, told = told_to()
    aot_compile(Layer(), fw_compiler=compiler)(torch.rand(1, 2, requires_grad=True)).sum().backward()
    forward, backward = told
    assert forward == ["self.weight.master", "self.bias"]
    assert backward == ["self.weight.master, saved for backward"], "the bias is not saved, and activations move"


def test_a_partition_of_torchs() -> None:
    from functorch.compile import min_cut_rematerialization_partition

    compiler, told = told_to()
    compiled = aot_compile(torch.mul, fw_compiler=compiler, partition_fn=min_cut_rematerialization_partition)
    x, w = torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)
    compiled(x, mark_static_address(w)).sum().backward()
    assert told == [["args[1]"], ["args[1], saved for backward"]]


def test_a_written_input_that_is_saved_is_a_copy() -> None:
    compiler, told = told_to()

    def program(x: Any, buffer: Any) -> Any:
        out = x * buffer.clone()
        buffer.add_(1)
        return out

    x, buffer = torch.rand(2, requires_grad=True), mark_static_address(torch.rand(2))
    aot_compile(program, fw_compiler=compiler)(x, buffer).sum().backward()
    assert told == [["args[1]"], []]


class _Count(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, count: Any) -> Any:
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.count.add_(1)
        return gradient * 2, None


def test_a_buffer_that_backward_writes() -> None:
    compiler, told = told_to()
    x, count = torch.rand(2, requires_grad=True), mark_static_address(torch.zeros(2))
    aot_compile(_Count.apply, fw_compiler=compiler)(x, count).sum().backward()
    assert count.tolist() == [1, 1]
    assert told[0] == ["args[1]"] and len(told[1]) == 1


def test_explain_says_it() -> None:
    compiled = aot_compile(lambda x, w: x * w)
    compiled(torch.rand(2), mark_static_address(TwoTensor(torch.rand(2), torch.rand(2))))
    lines = [line for line in compiled.explain().splitlines() if "args[" in line]
    assert [line.endswith(" static") for line in lines] == [False, True]


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize("offset, expected", [(0, ([1, 2], [1])), (1, ([2], [])), (4, ([1, 2], [1]))])
def test_inductor(offset: int, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor trusts that a static input is aligned: one that is not, now, is not reported to it."""
    seen = []

    def inner(graph: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        seen.append(list(options["static_input_idxs"]))
        return lambda flat: graph(*flat)

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", inner)
    module = Layer()
    codes = torch.rand(4 + offset)[offset:].view(2, 2)
    module.weight = nn.Parameter(QuantAwareWeight(codes))
    aot_compile(module, fw_compiler="inductor")(torch.rand(1, 2, requires_grad=True)).sum().backward()
    assert tuple(seen) == expected
