"""`resolve_conj` and `resolve_neg` give memory of its own where eager mode does."""

from __future__ import annotations

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
