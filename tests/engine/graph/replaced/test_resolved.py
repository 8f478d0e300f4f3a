"""`resolve_conj` and `resolve_neg` give memory of its own where eager mode does."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import difference


@pytest.mark.parametrize(
    ("fn", "is_new"),
    [
        (lambda x: x.conj().resolve_conj(), True),
        (lambda x: torch.resolve_conj(x.conj()), True),
        (lambda x: x.conj()[0].resolve_conj(), True),
        (lambda x: x.conj().imag.resolve_neg(), True),
        (lambda x: x.resolve_conj(), False),
        (lambda x: x.conj().resolve_conj().mul_(2), True),
        (lambda x: x.conj(), False),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_memory(fn: Any, is_new: bool, grad: bool) -> None:
    x = torch.randn(2, 3, dtype=torch.complex128, requires_grad=grad)
    expected, got = fn(x), aot_compile(fn)(x)
    assert torch.equal(expected, got) and expected.is_conj() == got.is_conj()
    for result in (expected, got):
        assert (result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) is not is_new
    if grad:
        gradients = [torch.autograd.grad((r * r.conj()).real.sum(), x)[0] for r in (expected, got)]
        torch.testing.assert_close(*gradients)


def test_inner_tensors() -> None:
    def program(x: Any) -> Any:
        y = x.conj().resolve_conj()
        x.mul_(2)
        return y

    def pair() -> TwoTensor:
        return TwoTensor(torch.ones(2, dtype=torch.complex128) * 1j, torch.ones(2, dtype=torch.complex128))

    assert not difference(program(pair()), aot_compile(program)(pair()))


def complex_of(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, x * 2)


BITS: dict[str, Any] = {
    "of conj": lambda x: [complex_of(x).conj().is_conj(), torch.is_conj(complex_of(x)), complex_of(x).mH.is_conj()],
    "of twice": lambda x: complex_of(x).conj().conj().is_conj(),
    "of parts": lambda x: [part.is_conj() for part in complex_of(x).conj().chunk(2, 1)],
    "of rows": lambda x: [complex_of(x).conj()[1:].is_conj(), complex_of(x).conj().t().is_conj()],
    "of imag": lambda x: [complex_of(x).conj().imag.is_neg(), torch.is_neg(complex_of(x).conj().real)],
    "of neg": lambda x: [torch._neg_view(x).is_neg(), torch._neg_view(torch._neg_view(x)).is_neg()],
    "of copies": lambda x: [(complex_of(x).conj() * 2).is_conj(), complex_of(x).conj().resolve_conj().is_conj()],
    "a branch": lambda x: x * 2 if complex_of(x).conj().imag.is_neg() else x * 3,
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dynamic", [True, False])
def test_bits_that_a_program_asks_for(name: str, dynamic: bool) -> None:
    x = torch.rand(3, 4)
    compiled = aot_compile(BITS[name], dynamic=dynamic)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), BITS[name](x), rtol=0, atol=0)


LAZY: dict[str, Any] = {
    "conj": lambda: complex_of(torch.rand(3, 4)).conj(),
    "neg": lambda: complex_of(torch.rand(3, 4)).conj().imag,
    "with a gradient": lambda: complex_of(torch.rand(3, 4, requires_grad=True)).conj(),
    "of a compiled function": lambda: aot_compile(torch.conj)(complex_of(torch.rand(3, 4))),
}


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_argument_runs_the_function_itself(name: str) -> None:
    """What one compiled function gives, another one takes."""
    torch._dynamo.reset()
    x = LAZY[name]()
    for compiled in (aot_compile(torch.sin), torch.compile(torch.sin, backend="subclass_aot")):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.testing.assert_close(compiled(x), torch.sin(x))
            torch.testing.assert_close(compiled(x.resolve_conj().resolve_neg()), torch.sin(x))
        assert [str(w.message).count("which is conjugated or negated lazily") for w in found] == [1]
