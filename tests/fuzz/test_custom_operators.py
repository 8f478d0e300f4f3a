"""The operators of random programs pass torch's own check, and compute what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from tests.fuzz import custom_operators as custom

CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "scaled": (custom.scaled, (torch.ones(2, 3, requires_grad=True), 2.0)),
    "parts": (custom.parts, (torch.ones(2, 3),)),
    "scale_": (custom.scale_, (torch.ones(2, 3), 2.0)),
    "swap_": (custom.swap_, (torch.ones(2, 3), torch.zeros(2, 3))),
}


@pytest.mark.parametrize("name", CALLS)
def test_schema_and_shapes(name: str) -> None:
    op, args = CALLS[name]
    checks = ("test_schema", "test_faketensor")
    assert torch.library.opcheck(op, args, test_utils=checks) == dict.fromkeys(checks, "SUCCESS")


def test_values() -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert custom.scaled(x, 2.0).tolist() == [2, 4] and [p.tolist() for p in custom.parts(x)] == [[1, 2], [-1, -2]]
    custom.scale_(x, 3.0)
    custom.swap_(x, y)
    assert (x.tolist(), y.tolist()) == ([3, 4], [3, 6])


def test_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    custom.scaled(x, 2.5).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.5, 2.5]


def test_other_sizes_are_refused_where_nobody_reads_what_was_written() -> None:
    """The kernel does not run then."""

    def program(x: torch.Tensor) -> torch.Tensor:
        custom.swap_(x * 2, x.sum())
        return x

    for function in (program, aot_compile(program)):
        with pytest.raises(RuntimeError, match="sizes differ|doesn't match the broadcast shape"):
            function(torch.ones(2, 3))


def test_helpers_are_not_collected() -> None:
    """Collecting this one for doctests would define its operators again, and free those that tests have."""
    from tests.conftest import pytest_ignore_collect

    assert pytest_ignore_collect(Path(custom.__file__)) is True and pytest_ignore_collect(Path(__file__)) is None
