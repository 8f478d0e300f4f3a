"""Programs that are compiled, saved, and loaded by another process: a function and what makes its arguments."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as TheirTwoTensor

import subclass_aot as sa


@dataclass
class Scaled:
    factor: float
    offset: torch.Tensor
    seen: list[torch.Tensor] = field(default_factory=list)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Gray(sa.WrapperTensor):
    codes: torch.Tensor
    levels: int = 4
    title: str = "gray"

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.codes)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.levels


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.calls = 0
        self.scale = 2.0

    def forward(self, x: torch.Tensor, double: bool = False) -> torch.Tensor:
        x = self.norm(self.first(x)).relu() * self.scale
        return self.second(x) * (2 if double else 1)


def R(*size: int) -> torch.Tensor:  # noqa: N802
    return torch.rand(*size) + 0.5


def leaf(*size: int) -> torch.Tensor:
    return R(*size).requires_grad_()


def twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin() * y, y + 1


def views(x: torch.Tensor) -> Any:
    return x.view(-1)[1:], x.unbind(0), (x * 2).unbind(1), x.t()


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(y)
    x[0] = 3
    return x.sum()


def writes_beside(x: torch.Tensor, view: torch.Tensor) -> Any:
    y = x + view
    x.t().add_(1)
    return y, y


def turns(x: torch.Tensor) -> torch.Tensor:
    x.t_()
    return x * 2


def constants(x: torch.Tensor) -> Any:
    table = torch.tensor([1.0, 2.0, 3.0])
    return x * table, {"name": "a", "dtype": torch.float32, "size": x.shape}, [1.5, None, Pair(x + 1, x + 2)]


def draws(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x, 0.5) + torch.randn(3)


def by_values(x: torch.Tensor, factor: float, *, power: int, kind: str = "sin") -> torch.Tensor:
    return getattr(x, kind)() * factor**power


def branches(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def objects(held: Scaled, x: torch.Tensor) -> torch.Tensor:
    held.seen.append(x * held.factor)
    held.factor += 1
    return x * held.factor + held.offset


def applied(module: nn.Module, x: torch.Tensor) -> Any:
    return module(x)


def product(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x @ weight.t()


def checkpointed(x: torch.Tensor) -> Any:
    def run(z: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(z).cos()

    return torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)


def aliases(x: torch.Tensor, w: torch.Tensor) -> Any:
    return x, w.detach(), x[1:], w


def two(*size: int) -> TheirTwoTensor:
    return TheirTwoTensor(R(*size), R(*size))


def shared() -> tuple[torch.Tensor, ...]:
    base = R(6)
    return base[:3], base[3:]


def overlapping() -> tuple[torch.Tensor, ...]:
    base = R(6)
    return base[:4], base[2:]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "dense": (twice, lambda: (R(3), R(3)), {}),
    "dense, training": (twice, lambda: (leaf(3), R(3)), {}),
    "views": (views, lambda: (R(2, 3),), {}),
    "views, training": (views, lambda: (leaf(2, 3).clone(),), {}),
    "views of wrappers": (views, lambda: (two(2, 3),), {}),
    "writes": (writes, lambda: (R(3), R(3)), {}),
    "writes that autograd sees": (writes, lambda: (leaf(3).clone(), R(3)), {}),
    "writes into wrappers": (writes, lambda: (two(3), two(3)), {}),
    "writes into shared memory": (writes, shared, {}),
    "writes into overlapping memory": (lambda x, y: (x.mul_(2), y + 1), overlapping, {}),
    "writes beside a view": (writes_beside, lambda: ((x := leaf(2, 3) * 2), x.view(-1)[:1]), {}),
    "turns": (turns, lambda: (R(2, 3),), {}),
    "constants": (constants, lambda: (leaf(3),), {}),
    "draws": (draws, lambda: (leaf(3),), {}),
    "values": (by_values, lambda: (R(3), 2.0), {"power": 2, "kind": "cos"}),
    "looks": (branches, lambda: (leaf(3),), {}),
    "objects": (objects, lambda: (Scaled(2.0, leaf(3)), R(3)), {}),
    "aliases": (aliases, lambda: (R(3), two(3)), {}),
    "checkpoint": (checkpointed, lambda: (leaf(3),), {}),
    "module as argument": (applied, lambda: (Layers(), R(5, 4)), {}),
    "module": (Layers(), lambda: (leaf(5, 4),), {"double": True}),
    "int8 weight": (product, lambda: (sa.Int8Weight.from_float(R(4, 4)), leaf(2, 4)), {}),
    "int4 weight": (product, lambda: (sa.Int4Weight.from_float(R(4, 64)), leaf(2, 64)), {}),
    "nested wrappers": (twice, lambda: (TheirTwoTensor(two(3), two(3)).requires_grad_(), R(3)), {}),
    "own class": (twice, lambda: (Gray(R(3), 5, "x"), leaf(3)), {}),
    "wrappers that are trained": (twice, lambda: (two(3).requires_grad_(), two(3)), {}),
    "begins somewhere": (lambda x: (x.as_strided((2,), (1,), 2), x + x.storage_offset()), lambda: (R(5)[1:],), {}),
    "a leaf begins somewhere": (lambda w: w * w.b.storage_offset(), lambda: (sa.TwoTensor(R(3), R(5)[2:]),), {}),
    "windows": (lambda x: (x.unfold(0, 2, 3).mul_(2), x * 1)[1], lambda: (R(9)[1:],), {}),
    "reaches out": (lambda x: (x.as_strided((4,), (2,)).mul_(2), x * 1)[1], lambda: (R(9)[1:5],), {}),
    "containers": (lambda x: {"a": [x["b"][0] + 1], "c": x}, lambda: ({"b": [R(3), 4]},), {}),
    "recurrent": (applied, lambda: (nn.LSTM(4, 3, 2), leaf(5, 2, 4)), {}),
    "recurrent, gated": (applied, lambda: (nn.GRU(4, 3), leaf(5, 2, 4)), {}),
    "namespace": (lambda n: n.x * 2, lambda: (types.SimpleNamespace(x=R(3)),), {}),
}
