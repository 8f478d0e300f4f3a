"""Programs whose sizes are symbols: a function, and what makes its arguments for a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as TheirTwoTensor

import subclass_aot as sa
from tests.files.compiled.programs import Gray, R, applied, leaf, product, twice, two, writes

LINEAR = nn.Linear(4, 4).requires_grad_(False)  # one, as a model is
ENCODER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).requires_grad_(False)


def halves(x: torch.Tensor, y: torch.Tensor) -> Any:
    n = x.shape[0]
    if n % 2 == 0:
        x = x.view(2, n // 2, -1).transpose(0, 1)
        return (x.reshape(n, -1) * y).sum(0), n * n + 1, x[1:]
    return x * y


def numbers(x: torch.Tensor) -> Any:
    return x * x.shape[0], x.shape, x.shape[0] ** 2 - 3, {"rows": torch.sym_max(x.shape[0], x.shape[1])}


def views(x: torch.Tensor) -> Any:
    return x.view(-1)[1:], x[1:].t(), (x * 2)[: x.shape[0] // 2], x


def alike(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Two numbers for views turn out to be one."""
    views = x.view(x.shape[0] * 2, -1), y.view(y.shape[0] * 2, -1)
    return *views, x + y, (x * y).view(-1)[y.shape[0] :]


def equal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sizes of a wrapper turn out to be known, and are inputs of the graph still."""
    n = y.shape[1]
    return x * 2 if n == 3 else x + n


def encoded(layer: nn.Module, x: torch.Tensor) -> Any:
    """A size turns out to be known, after sizes were made of it."""
    return layer(x)


def joined(*, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.cat([first, second]).cos()


SIZED: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "dense": (twice, lambda n: ((R(n), R(n)), {})),
    "training": (halves, lambda n: ((leaf(n, 6), R(n, 6)), {})),
    "numbers": (numbers, lambda n: ((R(n, 5),), {})),
    "numbers, training": (numbers, lambda n: ((leaf(n, 5),), {})),
    "views": (views, lambda n: ((R(n, 3),), {})),
    "views, training": (views, lambda n: ((leaf(n, 3).clone(),), {})),
    "writes": (writes, lambda n: ((R(n), R(n)), {})),
    "alike": (alike, lambda n: ((R(n, 4), R(n, 4)), {})),
    "alike, training": (alike, lambda n: ((leaf(n, 4).clone(), leaf(n, 4).clone()), {})),
    "known": (equal, lambda n: ((two(n, 3).requires_grad_(), two(n, 3)), {})),
    "encoder": (encoded, lambda n: ((ENCODER, leaf(2, n, 8)), {})),
    "keywords": (joined, lambda n: ((), {"first": leaf(n, 3), "second": R(n + 2, 3)})),
    "module": (applied, lambda n: ((LINEAR, leaf(n, 4)), {})),
    "int8 weight": (product, lambda n: ((sa.Int8Weight.from_float(R(n, 4)), leaf(n + 3, 4)), {})),
    "own class": (twice, lambda n: ((Gray(R(n, 2), 5, "x"), leaf(n, 2)), {})),
    "wrappers": (twice, lambda n: ((two(n, 3).requires_grad_(), two(n, 3)), {})),
    "views of wrappers": (views, lambda n: ((two(n, 3),), {})),
    "nested wrappers": (twice, lambda n: ((TheirTwoTensor(two(n), two(n)).requires_grad_(), R(n)), {})),
}
