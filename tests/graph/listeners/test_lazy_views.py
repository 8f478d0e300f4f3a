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
from tests.graph.recording import gone_backward, recorded


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
