"""The hot path at the limit: what bookkeeping costs beside what torch pays for it, with and without the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import subclass_aot as sa
from benchmarks import growth, least, leaves, machine, meta, null, torch_side, trace
from benchmarks.by_hand import SIZE, make
from benchmarks.call import accumulate, train
from benchmarks.leaves import OURS, THEIRS, tree
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

WRAPPERS = 100
CLASSES = {OURS: sa.TwoTensor, THEIRS: torch_side.TwoTensor}

WRAP_ACCELERATED = dict.fromkeys(CLASSES, 12)
WRAP_IN_PYTHON = {OURS: 4, THEIRS: 3}
"""How many times as fast as the code that torch generates a class is wrapped."""
INFERENCE = {"many": (4, 12), "one": (6, 15)}
"""Times as fast as `aot_function`, and as `torch.compile`, with many wrappers and with one."""
BARE = Target.faster(2, "forward + backward, null graphs, against a bare autograd.Function on dense tensors")
TRAINING = Target.faster(10, "forward + backward, null graphs, against aot_function")
TRACE = Target.faster(13, "joint trace of a 12-layer ViT against aot_function's")
FIRST = Target.faster(8.5, "first compile of a 12-layer ViT against aot_function's")
META = Target.faster(12, 'limit: MetaTensor ViT-B/16, batch 10^10, against device="meta"')

Operator = tuple[Callable[[Any], object], Callable[[Any, Any], object], float]
OPERATORS: dict[str, Operator] = {
    "x.detach()": (lambda x: x.detach(), lambda a, b: (a.detach(), b.detach()), 2.5),
    "x + x": (lambda x: x + x, lambda a, b: (a + a, b + b), 2),
    "x.mm(x)": (lambda x: x.mm(x), lambda a, b: (a.mm(a), b.mm(b)), 2),
    "x.t()": (lambda x: x.t(), lambda a, b: (a.t(), b.t()), 2),
    "x.view(-1)": (lambda x: x.view(-1), lambda a, b: (a.view(-1), b.view(-1)), 2),
}
"""Each on a pair, on two plain tensors, and how many times as long the first may take."""


def run(
    budget: Budget,
    wrappers: int = WRAPPERS,
    layers: int = 12,
    modules: tuple[int, int] = (100, 5000),
    signatures: int = 64,
    *,
    with_dynamo: bool = True,
) -> Iterator[Result]:
    """Measures every row; `show_config` says which parts of it run in C++."""
    yield from wrap(budget, wrappers)
    for count, which in ((wrappers, "many"), (1, "one")):
        yield from _inference(budget, count, INFERENCE[which], with_dynamo)
    yield from _training(budget, wrappers)
    yield from _eager(budget)
    yield from _compiling(budget, layers)
    yield from growth.run(budget, modules, signatures)
    yield from meta.run(budget, layers, META)


def wrap(budget: Budget, count: int) -> Iterator[Result]:
    """Torch generates its code since 2.12; before that, and for information, its loop is what to compare with."""
    times = leaves.measured("wrap", count, 1, budget).per(count)
    wanted = WRAP_ACCELERATED if machine.is_accelerated() else WRAP_IN_PYTHON
    for name, factor in wanted.items():
        target = Target.faster(factor, f"wrap of {name} against torch's generated code on torch's TwoTensor")
        against: dict[str, Target | None] = {}
        if torch_side.generated is not None:
            against[leaves.on(leaves.GENERATED, THEIRS)] = target
            if name == OURS:
                against[leaves.on(leaves.GENERATED, OURS)] = None
        against |= {leaves.on(way, name): None for way in (leaves.LOOP, leaves.HAND)}
        yield Result("wrap, per wrapper", f"{count} wrappers, {name}", times, leaves.on("plan", name), against)


def _inference(budget: Budget, count: int, wanted: tuple[float, float], with_dynamo: bool) -> Iterator[Result]:
    for name, cls in CLASSES.items():
        xs = tuple(tree(cls, 1) for _ in range(count))
        sides = {way: Side(function, xs) for way, function in null.ways(with_dynamo=with_dynamo).items()}
        case = f"{count} {'wrapper' if count == 1 else 'wrappers'}"
        against: dict[str, Target | None] = {
            other: Target.faster(factor, f"inference call, null graph, {case}, against {other}")
            for other, factor in zip((null.AOT_FUNCTION, null.DYNAMO), wanted, strict=True)
            if other in sides
        }
        yield Result("call, inference, null graph", f"{case}, {name}", compare(sides, budget), null.OURS, against)


def _training(budget: Budget, count: int) -> Iterator[Result]:
    dense, dense_tangents = ([torch.randn(SIZE).requires_grad_(leaf) for _ in range(count)] for leaf in (True, False))
    for name, cls in CLASSES.items():
        xs = tuple(tree(cls, 1).requires_grad_() for _ in range(count))
        tangents = tuple(tree(cls, 1) for _ in range(count))
        ways = null.ways(with_dynamo=False)
        sides = {way: Side(train, (function, xs, tangents)) for way, function in ways.items()}
        sides[null.BARE] = Side(train, (null.Bare.apply, tuple(dense), tuple(dense_tangents)))
        sides[least.FUNCTION] = Side(train, (null.Bare.apply, xs, tangents))
        times = compare(sides, budget)
        against: dict[str, Target | None] = {null.BARE: BARE, null.AOT_FUNCTION: TRAINING, least.FUNCTION: None}
        yield Result("call, forward + backward, null graphs", f"{count} wrappers, {name}", times, null.OURS, against)
        sides = {way: Side(accumulate, side.arguments) for way, side in sides.items()}
        times = compare(sides, budget)
        against = dict.fromkeys(against)
        yield Result("call, forward + backward into .grad", f"{count} wrappers, {name}", times, null.OURS, against)


def _eager(budget: Budget) -> Iterator[Result]:
    a, b = torch.randn(SIZE), torch.randn(SIZE)
    pair, plain = sa.TwoTensor(a, b), "two plain tensors"
    maker = make(least.Maker, SIZE)
    for name, (on_pair, on_two, factor) in OPERATORS.items():
        sides: dict[str, Side] = {OURS: Side(on_pair, (pair,)), plain: Side(on_two, (a, b))}
        sides[least.DISPATCH] = Side(on_pair, (maker,))
        target = Target.within(factor, f"eager {name} against two plain tensors")
        yield Result("eager", name, compare(sides, budget), OURS, {plain: target, least.DISPATCH: None})


def _compiling(budget: Budget, layers: int) -> Iterator[Result]:
    case, times = trace.vit(budget, layers)
    for side, target in {trace.JOINT: TRACE, trace.FIRST: FIRST}.items():
        against = {trace.AOT: target if layers == 12 else None}
        yield Result(side, case, times, side, against | ({least.COPY: None} if side == trace.JOINT else {}))
