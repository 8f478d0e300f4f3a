"""Inputs that are written where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.backends import one_by_one

Program = Callable[..., Any]


def copies_of(fn: Program, *args: torch.Tensor, versions: bool = True) -> int:
    """Compares three calls with eager mode, versions too; returns how often the last graph copies into an input."""
    made: list[str] = []
    write = one_by_one.write_graph

    def noted(graph: Any) -> Any:
        run = write(graph)
        made.append(run.__source__)  # type: ignore[attr-defined]
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subclass_aot.backends.eager.write_graph", noted)
        compiled, ours, theirs = sa.aot_compile(fn), [x.clone() for x in args], [x.clone() for x in args]
        for _ in range(3):
            results = compiled(*ours), fn(*theirs)
            assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
            if versions:
                assert [x._version > 0 for x in ours] == [x._version > 0 for x in theirs]
            if isinstance(results[1], torch.Tensor):
                assert torch.equal(*results)
    return len(re.findall(r"copy_\w*\(", made[-1])) + len(re.findall(r"# .*copy_\.default", made[-1]))


def momentum(weight: torch.Tensor, state: torch.Tensor, gradient: torch.Tensor) -> None:
    state.mul_(0.9).add_(gradient)
    weight.add_(state, alpha=-0.1)


def adam(weight: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, gradient: torch.Tensor) -> None:
    mean.lerp_(gradient, 0.1)
    square.mul_(0.9).addcmul_(gradient, gradient, value=0.1)
    weight.addcdiv_(mean, square.sqrt().add_(1e-8), value=-0.1)


def twice(x: torch.Tensor) -> None:
    x.mul_(2)
    x.add_(x)


IN_PLACE: dict[str, tuple[Program, int]] = {
    "momentum": (momentum, 3),
    "adam": (adam, 4),
    "twice": (twice, 1),
    "each": (lambda x, y: (x.add_(y), y.mul_(2))[0], 2),
}
COPIED: dict[str, tuple[Program, int]] = {
    "swapped": (lambda x, y: (x.add_(y), y.copy_(x - y))[0], 2),
    "read later": (lambda x, y: (x * 1, x.add_(y), None)[0], 2),
    "the old one is a result": (lambda x: (x.clone(), x.add_(1))[0], 1),
    "the new one is another result": (lambda x, y: y.copy_(x.add_(1)) * 2, 2),
    "a broadcast": (lambda x: x.copy_(x.sum(0)), 1),
    "a part": (lambda x, y: x[0].add_(y[1]), 2),
    "a transpose": (lambda x, y: x.copy_(y.t().exp()), 2),
    "something that may fail comes after": (lambda x, y: (x.add_(1), y[y[0, 0].long()])[1], 2),
    "a value is compared after": (lambda x, y: (x.add_(1), y * 2 if (y * y).sum() > -1 else y)[1], 2),
}
"""Programs that are right, whether or not they write where an input stands."""


@pytest.mark.parametrize("name", IN_PLACE)
def test_where_they_stand(name: str) -> None:
    fn, count = IN_PLACE[name]
    given = [torch.arange(9.0).view(3, 3) / (i + 7) for i in range(count)]
    assert copies_of(fn, *given) == 0


@pytest.mark.parametrize("name", COPIED)
def test_as_in_eager_mode(name: str) -> None:
    fn, count = COPIED[name]
    copies_of(fn, *[torch.arange(9.0).view(3, 3) / (i + 7) for i in range(count)])


def test_nothing_is_written_before_a_value_is_compared() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2 if y.sum() > 0 else y * 3

    compiled, x = sa.aot_compile(step), torch.zeros(3)
    for i, y in enumerate((torch.ones(3), -torch.ones(3), torch.ones(3), -torch.ones(3)), 1):
        assert torch.equal(compiled(x, y), y * 2 if y.sum() > 0 else y * 3)
        assert torch.equal(x, torch.full((3,), float(i)))


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adadelta])
def test_optimizers(cls: Any) -> None:
    """Counters that are read are read first, so that parameters are written where they stand."""

    def trained(compile_it: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        options = {"momentum": 0.9} if cls is torch.optim.SGD else {}
        optimizer = cls(net.parameters(), lr=0.1, weight_decay=0.01, **options)

        def step() -> None:
            optimizer.step()

        run: Any = sa.aot_compile(step) if compile_it else step
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.ones(2, 3)).square().sum().backward()
            run()
        states = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
        return [*(p.detach() for p in net.parameters()), *states]

    for ours, theirs in zip(trained(True), trained(False), strict=True):
        assert torch.equal(ours, theirs)


def test_two_names_of_one_memory() -> None:
    base = torch.arange(6.0)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y + 1

    compiled = sa.aot_compile(step)
    for shift in (0, 2, 4):
        ours, theirs = base.clone(), base.clone()
        result = compiled(ours[:4], ours[shift : shift + 2])
        assert torch.equal(result, step(theirs[:4], theirs[shift : shift + 2]))
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("divide", [torch.remainder, torch.floor_divide, torch.fmod])
def test_nothing_is_written_before_a_division_by_zero(divide: Program) -> None:
    def step(x: torch.Tensor, y: torch.Tensor, by: torch.Tensor) -> Any:
        new = x + 1
        result = divide(y, by)
        x.copy_(new)
        return result

    compiled, x, ones = sa.aot_compile(step), torch.zeros(3), torch.ones(3, dtype=torch.int64)
    compiled(x, ones, ones)
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        compiled(x, ones, ones * 0)
    assert torch.equal(x, torch.ones(3))


def test_what_is_read_behind_the_operator_is_what_stood_there() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        new = x + 1
        old = x * y
        x.copy_(new)
        return old

    copies_of(step, torch.ones(3), torch.arange(3.0))


def test_what_is_copied_twice() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        new = x + y
        x.copy_(new)
        y.copy_(new.mul(2))

    copies_of(step, torch.ones(3), torch.arange(3.0))
