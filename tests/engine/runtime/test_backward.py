"""What runs the backward graph: how it takes tangents apart, and which gradients it gives."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile

pytestmark = pytest.mark.usefixtures("either_way")


def leaf() -> torch.Tensor:
    return torch.rand(2, 3, requires_grad=True)


def two() -> TwoTensor:
    return TwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_()


class Counting:
    """Compiles graphs, and notes what backward graphs are given."""

    def __init__(self) -> None:
        self.runs: list[list[Any]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        run = torch.fx.Interpreter(graph).boxed_run

        def noted(inputs: list[Any]) -> Any:
            self.runs.append(list(inputs))
            return run(inputs)

        noted._boxed_call = True  # type: ignore[attr-defined]
        return noted


def test_zeros_stand_for_results_that_backward_does_not_go_through() -> None:
    counting, x = Counting(), leaf()
    one, _ = aot_compile(lambda x: ((y := x.exp()).sin(), y.t() * 2), bw_compiler=counting)(x)
    one.sum().backward()
    (inputs,) = counting.runs
    assert [bool(tangent.any()) for tangent in inputs[-2:]] == [True, False]
    assert inputs[-1].shape == (3, 2)
    torch.testing.assert_close(x.grad, x.detach().exp() * x.detach().exp().cos())


def test_the_text_grows_with_the_number_of_results_and_no_faster() -> None:
    def length(results: int) -> int:
        compiled = aot_compile(lambda xs: [x * 2 for x in xs])
        out = compiled([TwoTensor(torch.ones(1), torch.ones(1)).requires_grad_() for _ in range(results)])
        sum(x.sum() for x in out).backward()
        return len(compiled.source)

    ten, eighty = length(10), length(80)
    assert eighty / ten < 9


def test_autograd_may_pass_by() -> None:
    """On its way to something else: then nothing runs, and nothing has a gradient."""
    counting, x = Counting(), leaf()
    compiled = aot_compile(lambda x: (x.sin(), x.cos()), bw_compiler=counting)

    class Undefined(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            return given[0].sum()

        @staticmethod
        def backward(ctx: Any, *tangents: Any) -> Any:
            return None, None

    Undefined.apply(*compiled(x)).backward()
    assert x.grad is None and not counting.runs


@pytest.mark.parametrize("stride", [(3, 1), (1, 2), (0, 0)])
def test_tangents_come_to_the_graph_with_the_strides_it_was_traced_for(stride: tuple[int, int]) -> None:
    counting, x = Counting(), leaf()
    tangent = torch.rand(6).as_strided((2, 3), stride)
    before = tangent.clone()
    aot_compile(lambda x: x * 2, bw_compiler=counting)(x).backward(tangent)
    assert counting.runs[0][-1].stride() == (3, 1)
    assert (counting.runs[0][-1] is tangent) or stride != (3, 1)
    assert torch.equal(tangent, before) and tangent.stride() == stride
    torch.testing.assert_close(x.grad, 2 * before)


def test_an_input_that_the_used_results_do_not_reach_has_no_gradient() -> None:
    x, w = leaf(), leaf()
    one, other = aot_compile(lambda x, w: (x * 2, w * 3))(x, w)
    one.sum().backward(retain_graph=True)
    assert x.grad is not None and w.grad is None
    other.sum().backward()
    assert w.grad is not None and w.grad.unique().item() == 3


def test_an_input_that_requires_no_grad_gets_none() -> None:
    x, w = leaf(), torch.rand(2, 3)
    compiled = aot_compile(lambda x, w: x * w)
    compiled(x, w).sum().backward()
    assert w.grad is None and torch.equal(x.grad, w)  # type: ignore[arg-type]


def test_gradients_are_wrapped_as_their_inputs_are() -> None:
    x = two()
    result = aot_compile(lambda x: x * 2)(x)
    result.backward(TwoTensor(torch.full((2, 3), 1.0), torch.full((2, 3), 2.0)))
    assert type(x.grad) is TwoTensor and (x.grad.a.unique().item(), x.grad.b.unique().item()) == (2, 4)


def test_what_was_saved_elsewhere_can_be_freed_while_the_graph_runs() -> None:
    """The graph empties the list of its inputs, and the function that calls it has no names for them any more."""
    alive: list[bool] = []

    def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        run = torch.fx.Interpreter(graph).boxed_run

        def watched(inputs: list[Any]) -> Any:
            saved = weakref.ref(inputs[0])
            copies = [x.clone() for x in inputs]
            inputs.clear()
            alive.append(saved() is not None)
            return run(copies)

        watched._boxed_call = True  # type: ignore[attr-defined]
        return watched

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.detach(), lambda packed: packed.clone()):
        aot_compile(lambda x: x.sin().exp() * 2, bw_compiler=compiler)(x).sum().backward()
    assert alive == [False] and x.grad is not None


class WritesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, buffer: Any) -> Any:
        ctx.buffer = buffer
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.buffer.add_(gradient.sum())
        return gradient * 2, None


def test_what_backward_writes_is_written_as_it_is_then() -> None:
    x, buffer = leaf(), torch.zeros(())
    result = aot_compile(WritesInBackward.apply)(x, buffer)
    buffer.fill_(10)
    result.sum().backward()
    assert buffer.item() == 16


@pytest.mark.parametrize("make", [leaf, two])
def test_a_graph_that_gives_another_number_of_gradients_is_refused(make: Any) -> None:
    from subclass_aot.errors import CompilerResultError

    def compiler(graph: Any, inputs: Any) -> Any:
        return lambda *inputs: []

    result = aot_compile(lambda x: x * 2, bw_compiler=compiler)(make())
    with pytest.raises(CompilerResultError, match="backward"):
        result.sum().backward()
