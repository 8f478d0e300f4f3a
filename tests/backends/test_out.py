"""What writes into `out=`, by inductor, whose decompositions do not all take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from subclass_aot import TwoTensor, aot_compile

pytestmark = pytest.mark.filterwarnings("ignore")

Program = Callable[[Tensor, Tensor, Tensor], Any]

PROGRAMS: dict[str, Program] = {
    "mm": lambda x, y, out: torch.mm(x, y, out=out),
    "add": lambda x, y, out: torch.add(x, y, alpha=2, out=out),
    "addmm": lambda x, y, out: torch.addmm(x, x, y, out=out),
    "bmm": lambda x, y, out: torch.bmm(x[None], y[None], out=out[None]),
    "matmul": lambda x, y, out: torch.matmul(x, y, out=out),
    "clamp": lambda x, y, out: torch.clamp(x, 0.2, 0.4, out=out),
    "amax": lambda x, y, out: torch.amax(x, 0, out=out[0]),
    "fmin": lambda x, y, out: torch.fmin(x, y, out=out),
    "index_add": lambda x, y, out: torch.index_add(x, 0, torch.tensor([2, 0, 1]), y, out=out),
    "silu": lambda x, y, out: torch.ops.aten.silu.out(x, out=out),
    "max": lambda x, y, out: torch.max(x, 0, out=(out[0], torch.zeros(3, dtype=torch.int64))),
    "made inside": lambda x, y, out: torch.mm(x, y, out=torch.empty(3, 3)) + torch.add(x, y, out=torch.empty(0)),
    "read before and after": lambda x, y, out: (out * 2, torch.add(x, out, out=out), out * 3),
    "into a column": lambda x, y, out: torch.mm(x, y[:, :1], out=out[:, 1:2]),
}


_aten = torch.ops.aten
OF_ALL_OVERLOADS = {
    getattr(packet, overload): decomposition
    for packet, decomposition in {
        _aten.mm: lambda x, y: (x[:, :, None] * y).sum(1),
        _aten.silu: lambda x: x * x.sigmoid(),
    }.items()
    for overload in packet.overloads()
}
"""As torch registers them: those that write into `out=` are among them."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, dynamic: bool) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(
        lambda x, y, out: [r * 1 for r in _results(program(x, y, out))], fw_compiler="inductor", dynamic=dynamic
    )
    for _ in range(2):
        x, y = torch.rand(3, 3), torch.rand(3, 3)
        ours, theirs = torch.ones(3, 3), torch.ones(3, 3)
        found, expected = compiled(x, y, ours), _results(program(x, y, theirs))
        torch.testing.assert_close([*found, ours], [*expected, theirs])


@pytest.mark.parametrize("name", ["mm", "add", "clamp"])
def test_gradients_of_an_operator_that_writes_into_out_in_backward(name: str) -> None:
    """As torch's own `linear_cross_entropy` does, in chunks."""

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return PROGRAMS[name](x, y, torch.empty(3, 3)) * 1  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, *tangents: Tensor) -> tuple[Tensor, None]:
            return PROGRAMS[name](tangents[0], ctx.saved_tensors[1], torch.empty(3, 3)) * 2, None

    def program(x: Tensor, y: Tensor) -> Any:
        return Writes.apply(x, y)

    y = torch.rand(3, 3)
    gradients = []
    for function in (program, aot_compile(program, fw_compiler="inductor")):
        x = torch.linspace(0, 1, 9).view(3, 3).requires_grad_()
        function(x, y).sin().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["mm", "silu", "made inside", "into a column"])
def test_with_decompositions_of_the_user(name: str) -> None:
    program = PROGRAMS[name]
    x, y, ours, theirs = torch.rand(3, 3), torch.rand(3, 3), torch.ones(3, 3), torch.ones(3, 3)
    ran = []

    def compiler(graph: fx.GraphModule, examples: Any) -> Any:
        ran.extend(node.target for node in graph.graph.nodes)
        return graph

    found = aot_compile(program, fw_compiler=compiler, decompositions=OF_ALL_OVERLOADS)(x, y, ours)
    assert not set(OF_ALL_OVERLOADS).intersection(ran)
    torch.testing.assert_close([*_results(found), ours], [*_results(program(x, y, theirs)), theirs])


def test_a_wrapper() -> None:
    def program(x: Any, y: Any, out: Any) -> Any:
        return torch.add(x, y, out=out) * 1

    def two() -> TwoTensor:
        return TwoTensor(torch.rand(3, 3), torch.rand(3, 3))

    x, y, out = two(), two(), two()
    aot_compile(program, fw_compiler="inductor")(x, y, out)
    torch.testing.assert_close([out.a, out.b], [x.a + y.a, x.b + y.b])


def _results(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, tuple) else [found]
