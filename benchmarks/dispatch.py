"""One operator in eager mode on a two-tensor: a generated rule, torch's class, a rule written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks.by_hand import SIZE, HandTwoTensor
from benchmarks.row import Result, Target
from benchmarks.torch_side import TwoTensor
from subclass_aot.benchmark import Budget, Side, compare

ADD = Target.faster(4, "eager add against torch's TwoTensor")
DETACH = Target.faster(8, "eager detach against torch's TwoTensor")


def run(budget: Budget) -> Iterator[Result]:
    """Measures `add`, `mul` and `detach`."""
    a, b = torch.randn(SIZE), torch.randn(SIZE)
    values = {
        "subclass_aot.TwoTensor": sa.TwoTensor(a, b),
        "torch's TwoTensor": TwoTensor(a, b),
        "hand-written rule": HandTwoTensor(a, b),
        "the operator on one dense tensor": a,
    }
    for name, function, target in ("x + x", _add, ADD), ("x * 2", _mul, None), ("x.detach()", Tensor.detach, DETACH):
        times = compare({who: Side(function, (x,)) for who, x in values.items()}, budget)
        ours, theirs, *others = values
        yield Result("eager", name, times, ours, {theirs: target, **dict.fromkeys(others)})


def _add(x: Tensor) -> Tensor:
    return x + x


def _mul(x: Tensor) -> Tensor:
    return x * 2
