"""Lazy conjugation and negation: computed while tracing, though in eager mode they are views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Spec, TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.meta import Storage
from subclass_aot.testing import check_compiled
from tests.engine.graph.recording import gone_backward, recorded


def z(grad: bool = False) -> torch.Tensor:
    return torch.rand(2, 3, dtype=torch.complex64).requires_grad_(grad)


def returned(x: Any) -> Any:
    seen = x.conj()
    x.mul_(2)
    return seen


def computed_before(x: Any) -> Any:
    product = x.conj() * x
    x.mul_(2)
    return product


def in_between(x: Any) -> Any:
    y = x * 2
    y.mul_(y.conj().sum())
    return y + 1


@pytest.mark.parametrize("program", [returned, computed_before, in_between])
def test_writes_after_which_no_lazy_view_is_read(program: Callable[..., Any]) -> None:
    check_compiled(program, [z()])
    if program is not returned:  # of a wrapper a class of ours makes no lazy view
        check_compiled(program, [TwoTensor(z(), z())])


def written_by_its_view(x: Any) -> Any:
    return x.conj().mul_(2)


def written_by_a_view_of_it(x: Any) -> Any:
    x.conj()[0].zero_()


def read_after_the_write(x: Any) -> Any:
    seen = x.conj()
    x.mul_(2)
    return seen + 1


def inner_returned_after_the_write(x: Any) -> Any:
    y = x * 2
    seen = y.conj()
    y.mul_(2)
    return seen


def source_read_after_the_write(x: Any) -> Any:
    y = x * 2
    y.conj().mul_(2)
    return y + 1


def negated(x: Any) -> Any:
    x.conj().imag.mul_(2)


@pytest.mark.parametrize(
    "program",
    [
        written_by_its_view,
        written_by_a_view_of_it,
        read_after_the_write,
        inner_returned_after_the_write,
        source_read_after_the_write,
        negated,
    ],
)
def test_writes_that_a_lazy_view_would_see_are_refused(program: Callable[..., Any]) -> None:
    x = z()
    before = x.clone()
    with pytest.raises(MutationError, match=r"lazily(.|\n)*Your line:.*test_lazy_views.py(.|\n)*resolve_conj"):
        aot_compile(program)(x)
    assert x.equal(before) and x._version == 0


def test_a_product_with_a_complex_number() -> None:
    """Its backward conjugates the number, which stands for a tensor."""
    check_compiled(lambda x: x * (0.1 + 1j) / 3j, [z(grad=True)])
    check_compiled(lambda x: torch.view_as_complex(x).mul(1j), [torch.rand(3, 2).requires_grad_()])


def test_what_one_backward_makes_stale_is_not_so_for_others() -> None:
    forward, (y, seen) = recorded(lambda x: (y := x * 2, y.conj()), Spec.of(z()))
    first, _ = gone_backward(forward, lambda _: y.mul_(2))
    second, _ = gone_backward(forward, lambda _: seen.sin())
    with pytest.raises(MutationError, match="conjugated or negated lazily"), first:
        seen.cos()
    storage = Storage.of(seen)
    assert [recorder.listeners.lazy_views.stand_for(storage) for recorder in (forward, first, second)] == [True] * 3


class Conjugated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).conj()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.conj() * 3


LAZY: dict[str, Callable[[Any], Any]] = {
    "conj": lambda x: (x * 2).conj(),
    "detached": lambda x: (x * 2).conj().detach(),
    "adjoint": lambda x: (x * 2).mH,
    "twice": lambda x: (x * 2).conj().conj(),
    "a part": lambda x: (x * 2).conj()[1:],
    "a part of a part": lambda x: (x * 2)[:, 1:].conj()[1:].conj().t().conj(),
    "reshaped": lambda x: (x * 2).conj().reshape(-1),
    "with its base": lambda x: (y := x * 2, y.conj()),
    "two": lambda x: (y := (x * 2).conj(), y[0]),
    "imaginary": lambda x: (x * 2).conj().imag,
    "real": lambda x: (x * 2).conj().real,
    "negative": lambda x: torch._neg_view(x * 2),
    "of an argument": lambda x: (x.conj(), x.detach().mH),
    "imaginary, of an argument": lambda x: (x.conj().imag, x.conj()[1].real, x.t().conj()[1:].imag[0]),
    "a transform": lambda x: torch.fft.ihfft((x * 2).real),
    "transforms": lambda x: torch.fft.ihfftn((x * 2).real),
    "a factor": lambda x: torch.linalg.qr(x * 2)[0].mH,
    "a function of its own": Conjugated.apply,
    "resolved": lambda x: (x * 2).conj().resolve_conj(),
    "cloned": lambda x: (x * 2).conj().clone(),
}


def bits(results: Any) -> list[Any]:
    return [
        (r.is_conj(), r.is_neg(), r.stride(), r.requires_grad)
        for r in (results if isinstance(results, tuple) else (results,))
    ]


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_results_have_the_bits_of_eager_mode(name: str, mode: Any) -> None:
    program = LAZY[name]
    compiled = aot_compile(program, fw_compiler="eager")
    symbolic = aot_compile(program, fw_compiler="eager", dynamic=True)
    for size in (3, 4):
        if mode is torch.inference_mode and (size == 4 or name == "a part of a part"):
            continue  # with symbols, or in other memory, such parts have no base there of which the bit could be set
        x = torch.rand(size, size, dtype=torch.complex64, requires_grad=mode is not torch.inference_mode)
        with mode():
            expected, got = program(x), compiled(x)
            assert bits(got) == bits(expected)
            torch.testing.assert_close(got, expected)
            got = symbolic(x)
            torch.testing.assert_close(got, expected)
            if mode is not torch.inference_mode:
                assert bits(got) == bits(expected)
    if mode is torch.enable_grad:
        check_compiled(program, [torch.rand(3, 3, dtype=torch.complex64, requires_grad=True)], tries=0)


@pytest.mark.parametrize("name", ["conj", "imaginary", "a transform"])
@pytest.mark.parametrize("fw_compiler", ["eager", "inductor"])
@pytest.mark.usefixtures("fresh_dynamo")
def test_both_doors_and_inductor(name: str, fw_compiler: str) -> None:
    program, x = LAZY[name], torch.rand(3, 3, dtype=torch.complex64, requires_grad=True)
    options = {"fw_compiler": fw_compiler}
    for compiled in (
        aot_compile(program, fw_compiler=fw_compiler),
        torch.compile(program, backend="subclass_aot", options=options),
    ):
        assert bits(compiled(x)) == bits(program(x))
        torch.testing.assert_close(compiled(x), program(x))


def test_a_conjugate_without_gradients_is_no_copy() -> None:
    compiled = aot_compile(lambda x: x.conj(), fw_compiler="eager")
    with torch.inference_mode():
        x = z()
        assert compiled(x).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
