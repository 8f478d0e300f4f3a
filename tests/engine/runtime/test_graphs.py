"""The two graphs of a trace: what they say of their inputs and outputs, and what compilers are told of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn

from subclass_aot import QuantAwareWeight, TwoTensor, aot_compile, mark_static_address, trace_joint
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.passes import default_partition
from subclass_aot.engine.runtime import Graphs, backward_inputs, split
from subclass_aot.errors import CompilerResultError


def names(graph: fx.GraphModule, static: Any) -> list[str]:
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return [str(descriptor_of(inputs[i])) for i in static]


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


def test_a_partitioner_that_drops_an_input_is_refused() -> None:
    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        forward, backward = default_partition(joint, inputs, **options)
        unused = next(n for n in forward.graph.nodes if n.op == "placeholder" and not n.users)
        forward.graph.erase_node(unused)
        return forward, backward

    x = torch.rand(2, requires_grad=True)
    with pytest.raises(CompilerResultError, match="has 1 inputs, but the call has 2 leaves"):
        aot_compile(lambda x, unused: x.sin(), partition_fn=partition)(x, torch.rand(2))


def split_of(function: Any, *args: Any) -> Graphs:
    joint = trace_joint(function, *args)
    joint.vals.put_back(joint.graph_module)
    return split(joint, None)


def test_what_forward_makes_is_told_from_what_it_passes_on() -> None:
    def program(x: Any) -> Any:
        y = x.exp()
        return y, y.t(), y.view(-1)

    computed = split_of(program, torch.rand(2, 2, requires_grad=True)).computed
    assert [how.is_view for how in computed.values()] == [False]  # views are made again of what they view
    written = split_of(lambda x: x.t_().mul_(2), torch.rand(2, 3)).computed
    assert not any(how.is_alias for how in written.values())


def test_saved_tensors_say_which_input_or_output_they_are() -> None:
    graphs = split_of(lambda x, w: (x * w).exp(), torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True))
    assert {saved.input for saved in graphs.saved} == {0, 1, None}
    (output,) = [saved.output for saved in graphs.saved if saved.output is not None]
    assert output in graphs.computed, "the exponential is a result, and what its own gradient reads"


def test_writes_stand_at_the_end_of_forward() -> None:
    def program(x: Any) -> Any:
        x.mul_(2)
        return x.sin()

    nodes = list(split_of(program, torch.rand(2)).forward.graph.nodes)
    assert [str(n.target) for n in nodes[-2:]] == ["aten.copy_.default", "output"]
    assert nodes[-2].args[0] is nodes[0]


def test_without_gradients_there_is_one_graph() -> None:
    graphs = split_of(torch.sin, torch.rand(2))
    assert graphs.backward is None and not graphs.saved


@pytest.mark.parametrize("stride", [None, (1, 2), (2, 1)])
def test_backward_is_compiled_for_the_strides_that_forward_gives(stride: Any) -> None:
    graphs = split_of(lambda x: x.sin().exp() * 2, torch.rand(3, 2, requires_grad=True))
    assert graphs.backward is not None
    (free,) = [i for i, saved in enumerate(graphs.saved) if saved == (None, None)]
    position = len(graphs.computed) + free
    graphs.forward.meta["free_outputs"] = frozenset([position])
    graphs.forward.meta["output_strides"] = {position: stride}
    found = backward_inputs(graphs, graphs.backward)[free]
    assert found.stride() == (stride or (2, 1)) and found.shape == (3, 2)
