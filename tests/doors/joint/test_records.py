"""Inputs and outputs of a joint graph have the names that users have for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subclass_aot import Int8Weight, TwoTensor, quantize_, trace_joint
from subclass_aot.doors.joint import Joint


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y.relu()


def names(joint: Joint) -> list[str]:
    return [f"{given.kind} {given.name}" for given in joint.inputs]


def made(joint: Joint) -> list[str]:
    return [f"{out.kind} {out.name}" for out in joint.outputs]


def test_a_module() -> None:
    joint = trace_joint(Norm(), torch.rand(3, 4))
    assert names(joint) == [
        "parameter layers.0.weight",
        "parameter layers.0.bias",
        "parameter layers.1.weight",
        "parameter layers.1.bias",
        "buffer layers.1.running_mean",
        "buffer layers.1.running_var",
        "buffer layers.1.num_batches_tracked",
        "argument args[0]",
        "tangent tangent of output[0]",
    ]
    assert made(joint)[:4] == [
        "mutation new value of layers.1.running_mean",
        "mutation new value of layers.1.running_var",
        "mutation new value of layers.1.num_batches_tracked",
        "output output[0]",
    ]
    assert made(joint)[4:] == [f"gradient gradient of {name}" for name in joint.parameters]


def test_both_ways() -> None:
    joint = trace_joint(Norm(), torch.rand(3, 4))
    for given in joint.inputs:
        if given.kind == "parameter":
            assert given.gradient is not None and given.gradient.input is given and given.gradient.of == given.of
        elif given.kind == "tangent":
            assert given.output is not None and given.output.tangent is given and given.output.kind == "output"
        else:
            assert given.gradient is None and given.output is None
    written = [out for out in joint.outputs if out.kind == "mutation"]
    assert [out.input.of for out in written if out.input] == list(joint.buffers)
    assert [out.is_backward for out in joint.outputs] == [out.kind == "gradient" for out in joint.outputs]
    output: Any = joint.graph_module.graph.output_node().args[0]
    assert [out.node for out in joint.outputs] == list(output)


def test_leaves_of_wrappers() -> None:
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(TwoTensor(torch.rand(4, 4), torch.rand(4, 4)))
    joint = trace_joint(layer, torch.rand(2, 4))
    a, b = joint["weight"]
    assert (a.name, a.of, a.path, a.kind) == ("weight.a", "weight", ".a", "parameter") and b.path == ".b"
    assert a.gradient is not None and a.gradient.name == "gradient of weight.a" and a.gradient.input is a
    assert [out.name for out in joint.gradients_of("weight")] == ["gradient of weight.a", "gradient of weight.b"]
    tangents = [given for given in joint.inputs if given.kind == "tangent"]
    assert [(given.of, given.path) for given in tangents] == [("output[0]", ".a"), ("output[0]", ".b")]
    assert [given.output.name for given in tangents if given.output] == ["output[0].a", "output[0].b"]


def test_wrappers_in_wrappers() -> None:
    def two() -> TwoTensor:
        return TwoTensor(torch.rand(2), torch.rand(2))

    joint = trace_joint(torch.sin, TwoTensor(two(), two()).requires_grad_())
    assert [given.name for given in joint["args[0]"]] == ["args[0].a.a", "args[0].a.b", "args[0].b.a", "args[0].b.b"]
    assert [given.name for given in joint["args[0].a.b"]] == ["args[0].a.b"]
    assert joint["args[0].a.b"][0].gradient is not None


def test_a_weight_that_has_no_gradient() -> None:
    model = quantize_(nn.Sequential(nn.Linear(32, 32)), Int8Weight)
    joint = trace_joint(model, torch.rand(2, 32))
    assert {given.name for given in joint["0.weight"]} == {"0.weight.codes", "0.weight.scale"}
    assert joint.gradients_of("0.weight") == () and joint.gradients_of("0.bias")[0].name == "gradient of 0.bias"


def test_symbolic_sizes() -> None:
    x = TwoTensor(torch.rand(6, 4), torch.rand(6, 4)).requires_grad_()
    joint = trace_joint(lambda x: x * x.shape[0], x, dynamic=True)
    kinds = {given.name: given.kind for given in joint["args[0]"]}
    assert kinds["args[0].a"] == "argument" and kinds["args[0].size(0)"] == "size"
    assert kinds["args[0].stride(0)"] == "stride"
    assert {"output[0].size(0)", "gradient of args[0].size(0)"} <= {out.name for out in joint.outputs}
    assert any(out.kind == "number" for out in joint.outputs)


def test_storages_that_inputs_share() -> None:
    base = torch.rand(4)
    joint = trace_joint(lambda x, y: x.add_(1)[:2] * y, base[:3], base[1:3])
    (shared,) = [given for given in joint.inputs if given.kind == "base"]
    assert "args[0]" in shared.of and "args[1]" in shared.of


def test_what_an_object_holds() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys = torch.rand(2, requires_grad=True)

    joint = trace_joint(lambda cache, x: cache.keys * x, Cache(), torch.rand(2))
    (keys,) = joint["args[0].keys"]
    assert keys.kind == "held" and keys.gradient is not None


def test_an_input_that_backward_writes() -> None:
    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, count: Tensor) -> Tensor:
            ctx.count = count
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            ctx.count.add_(1)
            return gradient * 2, None

    joint = trace_joint(Counts.apply, torch.rand(2, requires_grad=True), torch.zeros(()))
    live = [given for given in joint.inputs if given.kind == "live"]
    assert [given.name for given in live] == ["args[1] when backward runs"]
    (written,) = [out for out in joint.outputs if out.kind == "mutation"]
    assert written.is_backward and written.input and written.input.node is joint["args[1]"][0].node


@pytest.mark.parametrize("count", [1, 2])
def test_modules_among_the_arguments(count: int) -> None:
    """One goes by the names that it has for its tensors; where two have the same names, the path tells them apart."""

    def program(models: list[nn.Module], x: Tensor) -> Any:
        return [model(x) for model in models]

    joint = trace_joint(program, [nn.Linear(2, 2) for _ in range(count)], torch.rand(1, 2))
    expected = ["weight", "bias"] if count == 1 else [f"args[0][{i}].{n}" for i in range(2) for n in ("weight", "bias")]
    assert list(joint.parameters) == expected
    assert joint["args[0][0].weight"][0].kind == "parameter"
