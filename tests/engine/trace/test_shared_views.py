"""A write into a result that shares scales with what it is a view of is a write of that, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Int4Weight, Int8Weight, aot_compile
from subclass_aot.errors import MutationError

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda w: w[:, :2],
    "detached": lambda w: w.detach()[:, :2].detach(),
    "detached at last": lambda w: w[:, :2].detach(),
    "a view of a detached": lambda w: w.detach()[:, :4][:, :2],
    "two that overlap": lambda w: [w[:, :2].detach(), w[:, 1:3].detach()],
    "beside a view": lambda w: [w[:, :2], w[:, 1:3].detach()],
    "transposed": lambda w: w.t()[1:3].detach(),
    "in a dict": lambda w: {"a": w.split(2, 1)[1].detach()},
    "by size": lambda w: w[:, : w.shape[1] // 2].detach(),
    "of a clone": lambda w: w.clone()[:, :2].detach(),
    "a clone and a part": lambda w: [y := w.clone(), y[:, :2].detach()],
    "parts of a clone": lambda w: [(y := w.clone())[:, :2].detach(), y[:, 1:].detach()],
    "parts of a clone, one a view": lambda w: [(y := w.clone())[:, :2], y[:, 1:].detach()],
}


MAKERS = {"int8": Int8Weight.from_float, "int4": Int4Weight.from_float}
CASES = [
    *(
        pytest.param(program, make, id=f"{name}-{of}")
        for name, program in PROGRAMS.items()
        for of, make in MAKERS.items()
    ),
    pytest.param(lambda w: w[:, :3].detach().t_(), Int8Weight.from_float, id="turned"),
]


def tensors(results: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(("program", "make"), CASES)
def test_write_of_a_result(program: Any, make: Any, inference: bool, dynamic: bool) -> None:
    found = []
    for run in (program, aot_compile(program, dynamic=dynamic)):
        with torch.inference_mode(inference), torch.no_grad():
            torch.manual_seed(0)
            w = make(torch.randn(4, 64))
            run(make(torch.randn(4, 64)))
            results = tensors(run(w))
            results[-1].mul_(10)
            found.append([w.to_plain(), *(result.to_plain() for result in results)])
    for expected, got in zip(*found, strict=True):
        assert torch.equal(expected, got)


class ThreeTimes(torch.autograd.Function):
    """Gives what it gets, and three times its gradient."""

    @staticmethod
    def forward(ctx: Any, w: torch.Tensor) -> torch.Tensor:
        return w.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 3


def test_what_has_a_history_keeps_it() -> None:
    def program(w: Any) -> torch.Tensor:
        return ThreeTimes.apply(w)[:, :2]  # type: ignore[no-any-return, no-untyped-call]

    for run in (program, aot_compile(program)):
        w = Int8Weight.from_float(torch.randn(4, 6)).requires_grad_()
        (gradient,) = torch.autograd.grad(run(w).to_plain().sum(), w)  # type: ignore[attr-defined]
        assert gradient[0].tolist() == [3, 3, 0, 0, 0, 0]


def test_versions() -> None:
    """`detach` shares the counter of writes."""
    w = Int8Weight.from_float(torch.randn(4, 6))
    view = aot_compile(lambda w: w.detach()[:, :2].detach())(w)
    before = w._version
    view.zero_()
    assert w._version > before


def test_of_a_tensor_that_was_turned() -> None:
    w = Int8Weight.from_float(torch.randn(4, 6))
    with pytest.raises(MutationError, match=r"Return a copy instead, as in result\.clone\(\)"):
        aot_compile(lambda w: [w[:, :2].detach(), w.t_()][0])(w)


@pytest.mark.parametrize("dynamic", [False, True])
def test_that_shares_no_field_of_one_of_which_a_view_was_turned(dynamic: bool) -> None:
    def program(w: torch.Tensor) -> torch.Tensor:
        turned, rows = w.t(), w[1:]
        turned.t_()
        return rows

    compiled = aot_compile(program, dynamic=dynamic)
    for rows in (3, 5):
        w = Int8Weight.from_float(torch.randn(rows, 6))
        with torch.inference_mode():
            view, expected = compiled(w), program(w)
            view.mul_(2)
        assert torch.equal(view.to_plain(), expected.to_plain())  # type: ignore[attr-defined]
        assert "it fails" not in compiled.explain()
