"""What Dynamo writes into a graph in place of functions of torch does what these functions do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils import checkpoint

from subclass_aot import TwoTensor
from subclass_aot.base import _torch
from subclass_aot.doors.dynamo.operators import as_called
from tests.doors.dynamo.checks import Make, check, rand

ForeignTwoTensor: Any = _torch.wrappers.foreign_two_tensor()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * x  # no gradient of the forward: whoever differentiates that is found out


class Kept(torch.autograd.Function):
    """Saves an input and what it computed as attributes, and has a result without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        ctx.made, ctx.factor = x * factor, factor
        places = x.argmax(0)
        ctx.mark_non_differentiable(places)
        return ctx.made.sin(), places

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad * ctx.made.cos() * ctx.factor, None


class Written(torch.autograd.Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 3


def two_sines(x: Tensor) -> Tensor:
    return x.sin().sin().cos()


@torch.compiler.nested_compile_region
def region(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x * y).sin(), nn.functional.dropout(y)


def regions(x: Tensor, y: Tensor) -> Any:
    first, second = region(x, y)
    return region(first, second)[0] + region(x, second)[0]


def keeping_sines() -> Any:
    return checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.sin.default])


PROGRAMS: dict[str, tuple[Any, Make]] = {
    "checkpoint of a dropout": (
        lambda x: checkpoint.checkpoint(lambda z: nn.functional.dropout(z.sin()), x, use_reentrant=False),
        lambda _: [rand(3, 2, grad=True)],
    ),
    "checkpoint with a policy": (
        lambda x: checkpoint.checkpoint(two_sines, x, use_reentrant=False, context_fn=keeping_sines),
        lambda _: [rand(3, 2, grad=True)],
    ),
    "autograd.Function of a wrapper": (
        lambda x: Doubled.apply(x).sin(),
        lambda _: [rand(3, 2, grad=True, cls=TwoTensor)],
    ),
    "autograd.Function of a foreign wrapper": (
        lambda x: Doubled.apply(x).sin(),
        lambda _: [rand(3, 2, grad=True, cls=ForeignTwoTensor)],
    ),
    "autograd.Function that keeps what it likes": (
        lambda x: Kept.apply(x, 3.0)[0].sin(),
        lambda _: [rand(3, 2, grad=True)],
    ),
    "autograd.Function that writes": (lambda x: Written.apply(x * 2).sin(), lambda _: [rand(3, 2, grad=True)]),
    "a region that is called thrice": (regions, lambda _: [rand(3, 2, grad=True), rand(3, 2, grad=True)]),
    "a region of wrappers": (regions, lambda _: [rand(3, 2, grad=True, cls=TwoTensor), rand(3, 2, grad=True)]),
    "a region of foreign wrappers": (
        regions,
        lambda _: [rand(3, 2, grad=True, cls=ForeignTwoTensor), rand(3, 2, grad=True)],
    ),
    "checkpoint": (
        lambda x: checkpoint.checkpoint(lambda z: z.sin().cos(), x, use_reentrant=False),
        lambda _: [rand(3, 2, grad=True)],
    ),
    "autograd.Function": (lambda x: Doubled.apply(x).sin(), lambda _: [rand(3, 2, grad=True)]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_does(name: str, dynamic: bool | None) -> None:
    program, make = PROGRAMS[name]
    check(program, make, dynamic=dynamic)


def test_what_a_checkpoint_computes_again_is_not_saved() -> None:
    saved: list[int] = []

    def compiler(gm: fx.GraphModule, inputs: Any) -> Any:
        saved.append(len(gm.graph.output_node().args[0]))  # type: ignore[arg-type]
        return gm

    def program(x: Tensor) -> Any:
        return checkpoint.checkpoint(two_sines, x, use_reentrant=False)

    for function in two_sines, program:
        torch.compiler.reset()
        compiled: Any = torch.compile(function, backend="subclass_aot", options={"fw_compiler": compiler})
        compiled(rand(3, grad=True)).sum().backward()
    in_forward = saved[::2]
    assert in_forward == [4, 2]


def test_a_graph_without_such_operators_is_left_as_it_is() -> None:
    gm = fx.symbolic_trace(lambda x: x.sin())
    assert as_called(gm) is gm


def test_the_graph_of_dynamo_stays_as_it_is() -> None:
    graphs: list[fx.GraphModule] = []

    def noted(gm: fx.GraphModule, inputs: Any) -> Any:
        before = gm.code
        found = as_called(gm)
        assert found is not gm
        assert gm.code == before
        graphs.append(found)
        return found

    x = rand(3, grad=True)
    program = PROGRAMS["checkpoint"][0]
    torch.testing.assert_close(torch.compile(program, backend=noted)(x), program(x))
    assert "higher_order.tag_activation_checkpoint" not in graphs[0].code


def _same_data(x: Tensor, y: Tensor) -> Tensor:
    x.data = y
    return x + 1


def _scaled_data(x: Tensor, y: Tensor) -> Tensor:
    x.data = x.data * 2
    return x * y


def _swapped_data(x: Tensor, y: Tensor) -> Tensor:
    mine = x.data
    x.data = y.data
    y.data = mine
    return x - y


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("program", "size"), [(_same_data, 3), (_same_data, 4), (_scaled_data, 3), (_swapped_data, 3)])
def test_data_that_is_assigned(program: Any, size: int, dynamic: bool | None) -> None:
    def calls(function: Any) -> list[Any]:
        if program is _scaled_data:
            x, y = torch.ones(3, requires_grad=True), torch.arange(3.0)
        else:
            x, y = torch.ones(3), torch.arange(float(size))
        found: list[Any] = []
        for _ in range(3):
            result = function(x, y)
            if result.requires_grad:
                result.sum().backward()
            found.append([x.detach().clone(), y.clone(), result.detach(), x.grad, x._version, y._version])
        return found

    torch.testing.assert_close(calls(torch.compile(program, backend="subclass_aot", dynamic=dynamic)), calls(program))
