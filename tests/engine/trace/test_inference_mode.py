"""Programs with an inference mode of their own, and views of normal tensors in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa


def viewed(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x.view(-1)
    return y * 2


def returned(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        return x.t()


def several(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        one, other = x.chunk(2)
    return one + other


def computed_first(x: torch.Tensor) -> Any:
    y = x + 1
    with torch.inference_mode():
        z = y[1:].unsqueeze(0)
    return z.sin(), y


def written(x: torch.Tensor) -> Any:
    y = x.detach() * 1
    with torch.inference_mode():
        y.view(-1)[2:].add_(1)
    return y


def of_what_it_made(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = (x * 2).view(-1)
        y[1:].mul_(3)
        return y.clone(), x.view(-1)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    f.__name__: f for f in (viewed, returned, several, computed_first, written, of_what_it_made)
}
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x,
    "wrapper": lambda x: sa.TwoTensor(x, x + 1),
}


@pytest.mark.every_case
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("door", ["aot_compile", "torch.compile"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, kind: str, door: str, grad: bool) -> None:
    program = PROGRAMS[name]
    torch._dynamo.reset()
    compiled = sa.aot_compile(program) if door == "aot_compile" else torch.compile(program, backend="subclass_aot")
    for rows in (2, 4, 6):
        x, y = (KINDS[kind](torch.arange(rows * 3.0).view(rows, 3) * 1).requires_grad_(grad) for _ in range(2))
        found, expected = compiled(x), program(y)
        torch.testing.assert_close(dense(found), dense(expected))
        results = [r if isinstance(r, tuple) else (r,) for r in (found, expected)]
        for a, b in zip(*results, strict=True):
            assert type(a) is type(b) and a.requires_grad == b.requires_grad
            if a.grad_fn is not None:
                one, other = (
                    torch.autograd.grad(r.sum(), at, retain_graph=True, allow_unused=True)[0]
                    for r, at in ((a, x), (b, y))
                )
                assert (one is None) is (other is None)
                assert one is None or torch.equal(dense(one)[0], dense(other)[0])
    assert torch.ones(2).add(1).tolist() == [2, 2]


def dense(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(dense, x))
    return [x.a, x.b] if isinstance(x, sa.TwoTensor) else x
