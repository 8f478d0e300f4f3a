"""One operator in eager mode: on a two-tensor (a generated rule, torch's class, a rule written by hand), and views.

Views of int8 and int4 weights are what `views=` makes of each field; they stand beside those of a dense tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks.by_hand import SIZE, HandTwoTensor
from benchmarks.row import Result, Target
from benchmarks.torch_side import TwoTensor
from subclass_aot.tensors import Int4Weight
from subclass_aot.testing.benchmark import Budget, Side, compare

ADD = Target.faster(4, "eager add against torch's TwoTensor")
VIEW = Target.within(13, "eager views of int8 weights, against a dense tensor's")
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
    yield from run_views(budget)


def run_views(budget: Budget) -> Iterator[Result]:
    """Measures views of weights that are made of several tensors."""
    dense = torch.randn(64, 64)
    weights = {"Int8Weight": sa.Int8Weight.from_float(dense), "Int4Weight": Int4Weight.from_float(dense, 8)}
    for name, view in VIEWS.items():
        for cls, weight in weights.items():
            times = compare({cls: Side(view, (weight,)), "dense": Side(view, (dense,))}, budget)
            target = VIEW if (cls, name) == ("Int8Weight", "x[:2]") else None
            yield Result("eager view", f"{cls}, {name}", times, cls, {"dense": target})


VIEWS: dict[str, Callable[[Tensor], object]] = {
    "x[:2]": lambda x: x[:2],
    "x[:, :8]": lambda x: x[:, :8],
    "x.t()": lambda x: x.t(),
    "x.transpose(0, 1)": lambda x: x.transpose(0, 1),
    "x.view(8, 8, 64)": lambda x: x.view(8, 8, 64),
    "x.unsqueeze(0)": lambda x: x.unsqueeze(0),
    "x.select(0, 1)": lambda x: x.select(0, 1),
    "x.split(32)": lambda x: x.split(32),
    "x.expand(2, 64, 64)": lambda x: x.expand(2, 64, 64),
    "x.narrow(0, 8, 8)": lambda x: x.narrow(0, 8, 8),
}


def _add(x: Tensor) -> Tensor:
    return x + x


def _mul(x: Tensor) -> Tensor:
    return x * 2
