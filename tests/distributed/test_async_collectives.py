"""What a collective has not brought yet, in compiled functions: read, written, with gradients, as argument and held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed import _functional_collectives as collectives

import subclass_aot as sa

pytestmark = [pytest.mark.usefixtures("alone", "fresh_dynamo"), pytest.mark.filterwarnings("ignore")]

DOORS: dict[str, Callable[[Any], Any]] = {
    "aot_compile": sa.aot_compile,
    "torch.compile": lambda f: torch.compile(f, backend="subclass_aot"),
}


def coming() -> Any:
    made = collectives.all_gather_tensor(torch.arange(4.0), 0, distributed.group.WORLD)
    assert type(made) is collectives.AsyncCollectiveTensor
    return made


def coming_with_gradient() -> tuple[Any, torch.Tensor]:
    x = torch.arange(4.0, requires_grad=True)
    return collectives.all_gather_tensor_autograd(x * 1, 0, distributed.group.WORLD), x


def product(x: Any) -> Any:
    x.mul_(2)
    return x + 1


def rows(x: Any) -> Any:
    x[0:2].mul_(2)
    return x + 1


def copied(x: Any) -> Any:
    x.copy_(torch.ones(4) * 9)
    return x * 1


def out(x: Any) -> Any:
    torch.add(x, 1, out=x)
    return x * 2


def detached(x: Any) -> Any:
    x.detach().mul_(3)
    return x + 1


def square(x: Any) -> Any:
    y = x.view(2, 2)
    y.add_(1)
    return x * 2, y * 1


def twice(x: Any) -> Any:
    x[0:2].add_(1)
    x[2:4].mul_(x[0:2])
    return x * 1


WRITES = [product, rows, copied, out, detached, square, twice]
READS: list[Callable[[Any], Any]] = [
    lambda x: x * 2,
    lambda x: x.view(2, 2).t() @ x[:2],
    lambda x: collectives.wait_tensor(x) * 2,
    lambda x: collectives.all_reduce(x, "sum", distributed.group.WORLD) * x,
    lambda x: (x * 2, x.sum()),
]


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    value = value.trigger_wait() if hasattr(value, "trigger_wait") else value
    return value.detach().clone()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("write", WRITES)
def test_an_argument_is_written(door: str, write: Any) -> None:
    compiled = DOORS[door](write)
    for _ in range(2):
        mine, oracle = coming(), coming()
        torch.testing.assert_close(plain(compiled(mine)), plain(write(oracle)))
        torch.testing.assert_close(plain(mine), plain(oracle))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("read", READS)
def test_an_argument_that_requires_grad(door: str, read: Any) -> None:
    compiled = DOORS[door](read)
    for _ in range(2):
        found = []
        for function in (compiled, read):
            y, x = coming_with_gradient()
            result = function(y)
            sum(part.sum() for part in (result if isinstance(result, tuple) else (result,))).backward()  # type: ignore[union-attr]
            found.append([plain(result), x.grad])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("write", WRITES)
def test_a_closure_is_written(door: str, write: Any) -> None:
    mine, oracle = coming(), coming()
    compiled = DOORS[door](lambda: write(mine))
    for _ in range(2):
        torch.testing.assert_close(plain(compiled()), plain(write(oracle)))
        torch.testing.assert_close(plain(mine), plain(oracle))


class Holder(nn.Module):
    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.register_buffer("buffer", buffer)

    def forward(self, x: Any) -> Any:
        return x + product(self.buffer)


@pytest.mark.parametrize("door", DOORS)
def test_a_buffer_is_written(door: str) -> None:
    mine, oracle = Holder(coming()), Holder(coming())
    compiled = DOORS[door](mine)
    for _ in range(2):
        x = torch.ones(4)
        torch.testing.assert_close(plain(compiled(x)), plain(oracle(x)))
        torch.testing.assert_close(plain(mine.buffer), plain(oracle.buffer))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("give", [lambda x: x, lambda x: (x * 2, x), lambda x: x.view(2, 2)])
def test_it_is_a_result(door: str, give: Any) -> None:
    compiled = DOORS[door](give)
    for _ in range(2):
        got, expected = compiled(coming()), give(coming())
        for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, expected)), strict=True):
            assert type(one) is type(other)
            torch.testing.assert_close(plain(one), plain(other))
