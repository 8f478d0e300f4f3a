"""`check_compiled` passes what is right, tells what is wrong, and prints the smallest program that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as TorchTwoTensor

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.errors import DataDependentError, DifferenceError, NondeterministicError
from subclass_aot.testing import check_compiled
from subclass_aot.testing.trees import Parts, Scaled, Tagged

aten: Any = torch.ops.aten


def rand(*size: int, **options: Any) -> torch.Tensor:
    return torch.rand(size, **options) + 0.5


def long_program(x: Any, w: Any, y: Any) -> Any:
    h = torch.tanh(x @ w.t()).relu()
    with torch.no_grad():
        y.mul_(2)
    z = h.softmax(-1) + y
    first, second = z.unbind(0)[:2]
    q = torch.sin(first) * second
    y[1:].add_(x.a[:3, :5])
    v = y.view(-1)
    return {"loss": q.sum(), "z": z}, [v[2:4], w, y.exp()]


def make_arguments() -> list[Any]:
    return [TwoTensor(rand(4, 6), rand(4, 6)).requires_grad_(), torch.nn.Parameter(rand(5, 6)), rand(4, 5)]


def shape_of_calls(program: str) -> tuple[int, str]:
    """How many lines the function of a printed program has, its last one apart, and its text."""
    body = program.split("def program(")[1].split("\n\n")[0].splitlines()[1:-1]
    return len([line for line in body if not line.strip().startswith("with ")]), "\n".join(body)


def fails_alike(error: DifferenceError, **names: Any) -> None:
    """Runs the printed program."""
    with pytest.raises(DifferenceError) as caught:
        exec(error.program, {"__name__": "printed", **names})
    kinds = [str(e).split("Difference: ")[1].split()[0] for e in (error, caught.value)]
    assert kinds[0] == kinds[1]


def changed(change: Callable[[Any], None]) -> Callable[..., Any]:
    """A compiler that does `change` to every node of its graph, and runs what comes of it."""

    def compiler(graph: Any, inputs: Any) -> Any:
        for node in list(graph.graph.nodes):
            change(node)
        graph.recompile()
        return graph.forward

    return compiler


def cosine(node: Any) -> None:
    if node.target is aten.sin.default:
        node.target = aten.cos.default


def no_softmax(node: Any) -> None:
    if node.target is aten._softmax.default:
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)


def no_writes(node: Any) -> None:
    if node.target is aten.copy_.default:
        node.graph.erase_node(node)


def wrong_gradient(node: Any) -> None:
    if node.target is aten.tanh_backward.default:
        node.target = aten.mul.Tensor


def raises(node: Any) -> None:
    if node.target is aten._softmax.default:
        raise KeyError("no softmax here")


@pytest.mark.parametrize(
    ("change", "most", "kept", "said"),
    [
        (cosine, 1, "torch.sin", "result"),
        (no_softmax, 1, "softmax", "result"),
        (no_writes, 1, "_(", "result"),
        (wrong_gradient, 1, "torch.tanh", "gradient"),
        (raises, 1, "softmax", "the call raises KeyError"),
    ],
)
def test_a_wrong_compiler(change: Any, most: int, kept: str, said: str) -> None:
    compiler = changed(change)
    with pytest.raises(DifferenceError) as caught:
        check_compiled(long_program, make_arguments(), fw_compiler=compiler)
    message = str(caught.value)
    assert f"Difference: {said}" in message
    count, body = shape_of_calls(caught.value.program)
    assert count <= most and kept in body, message
    assert "# compiler: yours" in message
    fails_alike(caught.value, compiler=compiler)


def test_arguments_stay_as_they_are() -> None:
    arguments = make_arguments()
    before = [x.detach().clone() for x in arguments]
    with pytest.raises(DifferenceError):
        check_compiled(long_program, arguments, fw_compiler=changed(cosine))
    for x, y in zip(arguments, before, strict=True):
        assert torch.equal(x, y) if type(x) is not TwoTensor else torch.equal(x.a, y.a)
        assert x.grad is None and x.is_leaf and x._version == 0
