"""What runs the forward graph: how it gives out what the graph computed, and what it keeps for backward."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.runtime.forward import _alias

pytestmark = pytest.mark.usefixtures("either_way")


def leaf() -> torch.Tensor:
    return torch.rand(2, 3, requires_grad=True)


def forward_of(function: Any, *args: Any, **options: Any) -> str:
    """The text of the generated function."""
    compiled = aot_compile(function, **options)
    compiled(*args)
    return "def forward(" + compiled.source.partition("def forward(")[2].partition("\ndef ")[0]


def test_it_is_a_part_of_the_call_where_there_are_no_gradients() -> None:
    compiled = aot_compile(lambda x: x * 2)
    compiled(torch.rand(2))
    assert "def forward" not in compiled.source and "forward_graph([" in compiled.source


def test_what_is_saved_and_returned_is_the_object_that_is_returned() -> None:
    """Autograd then sees that it is an output; else its history would keep itself alive."""

    def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        run = torch.fx.Interpreter(graph).boxed_run
        return lambda *inputs: [output.detach() for output in run(list(inputs))]  # each is another object

    result = aot_compile(lambda x: x.exp(), fw_compiler=compiler)(leaf())
    (saved,) = result.grad_fn.saved_tensors
    assert saved.data_ptr() == result.data_ptr() and saved.grad_fn is result.grad_fn
    result.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_nothing_is_saved_that_backward_does_not_read() -> None:
    result = aot_compile(lambda x, y: x.exp() * 0 + y.sin() + x)(leaf(), torch.rand(2, 3))
    assert [x.shape for x in result.grad_fn.saved_tensors] == [(2, 3)]
    assert aot_compile(lambda x: x + 1)(leaf()).grad_fn.saved_tensors == ()


def test_a_wrapper_is_saved_beside_its_leaf() -> None:
    """A write through the wrapper does not count on the leaf."""
    x, w = leaf(), TwoTensor(torch.rand(2, 3), torch.rand(2, 3))
    result = aot_compile(lambda x, w: x * w)(x, w)
    assert any(saved is w for saved in result.grad_fn.saved_tensors)
    w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_values_without_gradient_go_beside_autograd() -> None:
    def program(x: Any, y: Any) -> Any:
        return x * 2, y * 2, (x * 3).detach()

    text = forward_of(program, leaf(), torch.rand(2, 3))
    (line,) = [line for line in text.splitlines() if "non_differentiable +=" in line]
    assert line.count("output_") == 2
    made, *others = aot_compile(program)(leaf(), torch.rand(2, 3))
    assert made.requires_grad and not any(x.requires_grad for x in others)


def test_results_of_views_belong_to_nobody_else() -> None:
    """A graph may return a view of something unseen; as such it could not be written in place later."""
    result = aot_compile(lambda x: (x * 2).t())(leaf())
    assert result._base is None
    result.mul_(3)


def test_the_inputs_of_the_graph_are_kept_only_where_they_are_read_later() -> None:
    assert "forward_graph(leaves)" in forward_of(lambda x: x * 2, leaf())
    wrapped = forward_of(lambda x, y: x * TwoTensor(y, y + 1), leaf(), torch.rand(2, 3))
    assert "forward_graph(" in wrapped

    def passes_on(x: Any, y: Any) -> Any:
        return x * 2, TwoTensor(y, x.detach() + 1)

    assert "forward_graph(list(leaves))" in forward_of(passes_on, leaf(), torch.rand(2, 3))


def test_symbolic_sizes_are_kept_for_backward() -> None:
    compiled = aot_compile(lambda x: x.expand(2, *x.shape).sum(0), dynamic=True)
    for size in (4, 5):
        x = torch.rand(size, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0] * size
    assert "ctx.sizes = [" in compiled.source and not compiled.recompiles


def test_a_write_through_a_wrapper_that_autograd_is_given_is_seen() -> None:
    x, w = (TwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_() for _ in range(2))
    result = aot_compile(lambda x, w: x * w)(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.parametrize(
    ("view", "dtype"),
    [
        (lambda x: x[1:, ::2], torch.float32),
        (lambda x: x.t(), torch.float32),
        (lambda x: x.view(-1)[3:], torch.float32),
        (lambda x: x.view(torch.int32), torch.int32),
        (lambda x: torch.view_as_complex(x.view(2, 2, 2)), torch.complex64),
    ],
)
@pytest.mark.parametrize("start", [0, 4])
def test_an_alias_is_the_view_that_it_looks_like(view: Any, dtype: torch.dtype, start: int) -> None:
    base = torch.rand(12, requires_grad=True)
    x = base.detach()[start : start + 8].view(2, 4)
    expected = view(x)
    width = dtype.itemsize
    offset = expected.storage_offset() - x.storage_offset() * x.itemsize // width
    found = _alias(x, dtype, expected.shape, expected.stride(), offset)
    assert torch.equal(found, expected) and found.data_ptr() == expected.data_ptr()
    assert found.stride() == expected.stride() and not found.requires_grad and found._base is None


def test_what_is_kept_goes_with_the_results() -> None:
    result = aot_compile(lambda x: x.sin().exp())(leaf())
    before = len(result.grad_fn.saved_tensors)
    result.sum().backward()
    gc.collect()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        result.grad_fn.saved_tensors  # noqa: B018
    assert before > 0
