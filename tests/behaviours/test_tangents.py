"""Rows 5, 10, 17 to 19 and 30: gradients that come in, and what is kept for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import WrapperTensor, aot_compile
from subclass_aot.errors import TangentError
from subclass_aot.testing import dense_leaves, difference, rebuilt
from subclass_aot.wrapper import plain_tangent

DENSE_GRADIENTS = "its operators give dense results, and so dense gradients: see the next test"
NO_CONVERSION = "it declares no conversion: see the test above"


def gradient_for(tensor: Any) -> Any:
    """A gradient of the class that eager has for `tensor`, the same each time."""
    return rebuilt(plain_tangent(tensor), lambda x: torch.linspace(0, 1, x.numel(), dtype=x.dtype).view(x.shape))


@pytest.mark.inductor("two")
def test_row_05_input_written_between_forward_and_backward(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        with torch.no_grad():
            args[0].mul_(2)
        return torch.autograd.grad(out.sum(), args[1])

    agree(lambda p, q: p * q, lambda: (kind(3, 4), kind(3, 4, grad=True, seed=1)), later)


def test_row_05_output_written_between_forward_and_backward(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        with torch.no_grad():
            out.mul_(2)
        return torch.autograd.grad(out.sum(), args[0])

    agree(lambda p: p.exp(), lambda: (kind(3, 4, grad=True),), later)


def test_row_10_gradient_object_is_never_touched(kind: Any) -> None:
    """Each leaf of the gradient is transposed in memory; the gradient itself says that it is contiguous."""
    x = kind(3, 4, grad=True)
    compiled = aot_compile(lambda x: x * 2)
    out = compiled(x)
    gradient = rebuilt(gradient_for(out), lambda leaf: leaf.t().contiguous().t())
    if isinstance(gradient, TwoTensor):
        gradient = TwoTensor(gradient.a, gradient.b, gradient.size(), (4, 1))
    leaves = dense_leaves(gradient)
    before = [(leaf, leaf.clone(), leaf.stride(), leaf._version) for leaf in leaves]
    out.backward(gradient)
    assert all(a is b for a, b in zip(dense_leaves(gradient), leaves, strict=True))
    for leaf, value, stride, version in before:
        assert leaf.equal(value) and (leaf.stride(), leaf._version) == (stride, version)
    expected = kind(3, 4, grad=True)
    (expected * 2).backward(gradient)
    assert not difference(expected.grad, x.grad, strides=False)


@pytest.mark.inductor("two")
def test_row_17_backward_through_one_of_several_outputs(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        return x.sin(), x * 3, x.exp()

    for used in range(3):
        agree(
            program,
            lambda: (kind(3, 4, grad=True),),
            lambda args, out, used=used: torch.autograd.grad(out[used].sum(), args[0]),
        )


def test_row_17_no_gradient_reaches_an_input(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out[0].sum(), args[0])

    def program(x: Any, y: Any) -> Any:
        return x * 2, y * 3

    agree(program, lambda: (kind(3, 4, grad=True), kind(3, 4, grad=True, seed=1)), later)


@pytest.mark.unfit(affine=DENSE_GRADIENTS)
def test_row_18_dense_gradient_for_a_wrapper(kind: Any) -> None:
    out = aot_compile(lambda x: x * 2)(kind(3, 4, grad=True))
    with pytest.raises(TangentError) as info:
        out.backward(torch.ones(3, 4))
    for text in ("output 0", "Expected: TwoTensor", "Got:      Tensor (dense)", "a gradient of the expected class"):
        assert text in str(info.value)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.unfit(two=NO_CONVERSION, nested=NO_CONVERSION, pair=NO_CONVERSION)
def test_row_18_declared_conversion(kind: Any, dense: bool) -> None:
    """A wrapper that says `to_plain` is a gradient for what has dense gradients."""
    x, y = kind(3, 4, grad=True), kind(3, 4, grad=True)
    gradient = kind(3, 4, seed=1)
    aot_compile(lambda x: x * 2)(x).backward(gradient.to_plain() if dense else gradient)
    (y * 2).backward(gradient.to_plain())
    assert not difference(y.grad, x.grad, strides=False)


def test_row_18_wrapper_for_a_dense_tensor(kind: Any) -> None:
    x = torch.rand(3, 4, requires_grad=True, dtype=kind(3, 4).dtype)
    out = aot_compile(lambda x: x * 2)(x)
    gradient = kind(3, 4)
    if hasattr(gradient, "to_plain"):
        out.backward(gradient)
        torch.testing.assert_close(x.grad, gradient.to_plain() * 2)
    else:
        with pytest.raises(TangentError, match=r"(?s)Expected: Tensor.*__coerce_same_metadata_as_tangent__"):
            out.backward(gradient)


def test_row_18_nested_for_flat_and_flat_for_nested() -> None:
    flat = TwoTensor(torch.rand(3), torch.rand(3))
    nested = TwoTensor(flat.clone(), flat.clone())
    for given, arrives in ((flat, nested), (nested, flat)):
        out = aot_compile(lambda x: x * 2)(given.clone().requires_grad_())
        with pytest.raises(TangentError, match="output 0"):
            out.backward(arrives)


class Marked(WrapperTensor, fallback="each"):
    """A tensor with a mark, and gradients that can be given another."""

    value: torch.Tensor
    mark: int = 0

    def __coerce_same_metadata_as_tangent__(self, context: Any, expected_type: type | None = None) -> Any:
        if expected_type in (None, Marked):
            return Marked.__tensor_unflatten__({"value": self.value}, context, self.size(), self.stride())
        return self.value if expected_type is torch.Tensor else None


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x.clone())])
def test_row_19_gradient_with_another_context(wrap: Any) -> None:
    x = wrap(Marked(torch.ones(3, 4), 1)).requires_grad_()
    gradient = wrap(Marked(torch.arange(12.0).view(3, 4), 2))
    aot_compile(lambda x: x * 3)(x).backward(gradient)
    assert not difference(wrap(Marked(torch.arange(12.0).view(3, 4) * 3, 1)), x.grad)


def test_row_19_gradient_of_another_class_through_the_hook() -> None:
    x = torch.ones(3, requires_grad=True)
    aot_compile(lambda x: x * 3)(x).backward(Marked(torch.arange(3.0), 2))
    torch.testing.assert_close(x.grad, torch.arange(3.0) * 3)


@pytest.mark.parametrize("strided", [lambda x: x.t().contiguous().t(), lambda x: x[:1, :1].clone().expand(3, 4)])
def test_row_19_gradient_with_other_strides(agree: Any, kind: Any, strided: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out, args[0], rebuilt(gradient_for(out), strided))

    agree(lambda x: x * x, lambda: (kind(3, 4, grad=True),), later)


def test_row_30_what_is_saved_is_dense(kind: Any) -> None:
    """The backward graph is given dense tensors."""
    given: list[type] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        def run(values: list[Any]) -> Any:
            given.extend(map(type, values))
            return graph.forward(*values)

        return run

    x, y = kind(3, 4, grad=True), kind(3, 4, grad=True, seed=1)
    (aot_compile(lambda x, y: (x * y).sin() * y, bw_compiler=compiler)(x, y)).sum().backward()
    assert len(given) > 2 and set(given) == {torch.Tensor}
