"""Numbers of Python that change from call to call: symbols from then on, whatever a program does with them."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optree
import pytest
import torch

from subclass_aot import TwoTensor, aot_compile, load_compiled
from subclass_aot.testing.compare import difference

INTEGERS = [2, 3, 5, 4, 7, 3]
FLOATS = [2.5, 3.25, 2.0, 4.5, 1.75, 2.5]
SMALL = [0, 1, 2, 3, -1, 4]
MIXED = [2, 2.5, 3, 3.5, True, 0.0]

ONCE: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "times": lambda x, n: x * n,
    "full": lambda x, n: torch.full((2,), n) + x.sum(),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "clamp": lambda x, n: x.clamp(max=n / 10),
    "result": lambda x, n: (x * 2, n, n + 1, [n]),
    "class": lambda x, n: x * (2 if isinstance(n, int) else 3 if isinstance(n, float) else 5),
    "unread": lambda x, n: x * 2,
    "linspace": lambda x, n: torch.linspace(0, n, 5) + x.sum(),
    "where": lambda x, n: torch.where(x > n, x, n),
    "power": lambda x, n: x * (n + 1) ** 2,
}
"""Programs of which one graph serves all values of one class."""

MORE: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "exp": lambda x, n: x * math.exp(n / 10),
    "branch": lambda x, n: x * 2 if n > 3 else x + n,
    "text": lambda x, n: (x, f"{n}", str(n), "%.2f" % n),  # noqa: UP031
    "key": lambda x, n: x * {2: 1.0, 3: 2.0, 2.5: 3.0}.get(n, 7.0),
    "tensor": lambda x, n: x * torch.tensor(n),
    "equal": lambda x, n: x * (1 if n == 2 else 5),
    "round": lambda x, n: x * round(n, 1),
    "int": lambda x, n: x * int(n),
    "slice": lambda x, n: x[: int(n)] * 2,
    "loop": lambda x, n: sum((x * i for i in range(int(n) % 4)), x),
    "divmod": lambda x, n: x * min(n, 4) * max(n, 3) * abs(-n) * divmod(n, 2)[1],
    "truth": lambda x, n: x * (2 if n else 3),
    "json": lambda x, n: (x, json.dumps({"n": n})),
    "cosine": lambda x, n: x * 0.5 * (1 + math.cos(math.pi * n / 10)),
    "complex": lambda x, n: x * complex(n, 1),
    "eps": lambda x, n: torch.nn.functional.layer_norm(x, (4,), eps=n),
    "hash": lambda x, n: (x * (hash(n) % 7), len({n, 2})),
}


def assert_equal(got: Any, expected: Any) -> None:
    """Compares structures of tensors and numbers to the last bit, NaN with NaN."""
    ours, theirs = optree.tree_flatten(got), optree.tree_flatten(expected)
    assert ours[1] == theirs[1]
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert difference(other, one, rtol=0, atol=0) == "" or one != one


def compilations_of(fn: Callable[..., Any], values: list[Any], requires_grad: bool) -> int:
    """Compares calls with eager mode; returns how often it was compiled. No warning comes."""
    compiled = aot_compile(fn)
    for value in values:
        made = []
        for each in (fn, compiled):
            x = (torch.arange(12.0).reshape(3, 4) / 7 + 0.5).requires_grad_(requires_grad)
            result = each(x, value)
            first = result[0] if isinstance(result, tuple) else result
            if first.requires_grad:
                first.abs().sum().backward()
            made.append((result, x.grad))
        assert_equal(made[1], made[0])
    return len(compiled.recompiles) + 1


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("values", [INTEGERS, FLOATS])
@pytest.mark.parametrize("name", ONCE)
def test_two_graphs_serve_all_values(name: str, values: list[Any], requires_grad: bool) -> None:
    assert compilations_of(ONCE[name], values, requires_grad) <= 2


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("values", [SMALL, MIXED])
@pytest.mark.parametrize("name", [name for name in ONCE if name != "alpha"])  # which `True` cannot be
def test_small_numbers_and_other_classes(name: str, values: list[Any], requires_grad: bool) -> None:
    assert compilations_of(ONCE[name], values, requires_grad) <= len(values)


@pytest.mark.parametrize("values", [INTEGERS, FLOATS, SMALL, MIXED])
@pytest.mark.parametrize("name", MORE)
def test_what_is_read_is_compared(name: str, values: list[Any]) -> None:
    assert compilations_of(MORE[name], values, True) <= len(values) + 1


def test_many_values_that_are_read_stay_numbers() -> None:
    """There are more of them than sets of values of tensors may be compiled for, and no warning comes."""
    assert compilations_of(lambda x, n: x * math.exp(n), [i / 16 for i in range(1, 25)], False) <= 26


@dataclasses.dataclass
class Schedule:
    scale: float
    step: int


PLACES: dict[str, tuple[Callable[[torch.Tensor, Any], Any], Callable[[int], Any]]] = {
    "dict": (lambda x, s: x * s["scale"], lambda i: {"scale": 2.0, "step": i}),
    "list": (lambda x, s: x * s[0], lambda i: [2.0, i]),
    "tuple": (lambda x, s: x * s[0], lambda i: (2.0, i + 0.5)),
    "object": (lambda x, s: x * s.scale, lambda i: types.SimpleNamespace(scale=2.0, step=i)),
    "dataclass": (lambda x, s: x * s.scale, lambda i: Schedule(2.0, i)),
    "nested": (lambda x, s: x * s["a"][0].scale, lambda i: {"a": [Schedule(i / 4, i)], "b": (i, (i, 0.5 * i))}),
}


@pytest.mark.parametrize("place", PLACES)
def test_numbers_in_what_is_passed(place: str) -> None:
    fn, given = PLACES[place]
    compiled, x = aot_compile(lambda x, s: fn(x, s)), torch.ones(3)
    for i in range(2, 8):
        assert_equal(compiled(x, given(i)), fn(x, given(i)))
    assert len(compiled.recompiles) == 1
    assert ": " in compiled.recompiles[0]


def test_keyword_arguments() -> None:
    def scaled(x: torch.Tensor, *, rate: float, steps: int) -> torch.Tensor:
        return x * rate + steps

    compiled = aot_compile(scaled)
    for i in range(2, 7):
        assert_equal(compiled(torch.ones(3), rate=i / 4, steps=i), scaled(torch.ones(3), rate=i / 4, steps=i))
    assert compiled.recompiles == ["kwargs['rate']: 0.5 before, 0.75 now; kwargs['steps']: 2 before, 3 now"]


def test_numbers_that_the_function_changes() -> None:
    def step(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        state["steps"] += 1
        state["mean"] = 0.9 * state["mean"] + 0.1
        state["pair"] = (state["pair"][0] * 0.5, state["pair"][1] + 1)
        return x * state["mean"] / (1 - 0.9 ** state["steps"]) + state["pair"][0]

    def state() -> dict[str, Any]:
        return {"steps": 0, "mean": 0.0, "pair": (1.0, 2)}

    compiled, ours, theirs = aot_compile(step), state(), state()
    for _ in range(7):
        assert_equal(compiled(ours, torch.ones(2)), step(theirs, torch.ones(2)))
        assert ours == theirs
        assert list(map(type, ours.values())) == [int, float, tuple]
    assert len(compiled.recompiles) <= 2


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_schedule_of_learning_rates(optimizer: Any) -> None:
    """The step is not compiled again each time the rate is another one."""

    def train(compile_it: bool) -> tuple[list[torch.Tensor], int]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        opt = optimizer(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)

        def step(x: torch.Tensor) -> torch.Tensor:
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            return loss

        run: Any = aot_compile(step) if compile_it else step
        losses = []
        for _ in range(7):
            losses.append(run(torch.ones(2, 3)).detach())
            schedule.step()
        return losses, len(run.recompiles) if compile_it else 0

    ours, count = train(True)
    theirs, _ = train(False)
    assert_equal(ours, theirs)
    assert count <= 2


def test_no_number_is_a_symbol_where_none_may_be() -> None:
    compiled = aot_compile(lambda x, n: x * n, dynamic=False)
    for n in (2, 3, 4, 0.5, 0.25):
        compiled(torch.ones(1), n)
    assert len(compiled.recompiles) == 4


def test_sizes_are_symbols_where_the_number_cannot_be_one() -> None:
    compiled = aot_compile(lambda x, n: (x * 2, json.dumps(n)))
    for size, n in ((3, 2.5), (4, 2.5), (5, 3.5), (6, 4.5), (7, 4.5)):
        assert_equal(compiled(torch.ones(size), n), (torch.ones(size) * 2, json.dumps(n)))
    assert len(compiled.recompiles) <= 5


def test_not_a_number() -> None:
    compiled = aot_compile(lambda x, n: x * n)
    for n in (float("nan"), 2.0, float("nan"), float("inf")):
        assert_equal(compiled(torch.ones(1), n), torch.ones(1) * n)


def test_a_file_has_whole_numbers_that_change(tmp_path: Path) -> None:
    compiled = aot_compile(lambda x, n: x * n)
    for n in (2, 3, 4):
        compiled(torch.ones(3), n)
    compiled.save(tmp_path / "f.sa")
    loaded = load_compiled(tmp_path / "f.sa", trust=True)
    for n in (2, 9, 17):
        assert_equal(loaded(torch.ones(3), n), torch.ones(3) * n)


def test_behind_values_refused() -> None:
    """A number of Python is no value of a tensor."""
    compiled = aot_compile(lambda x, n: x * n + (1 if n > 2 else 0), values="refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (0.5, 0.25, 3.5, 4.5):
            assert_equal(compiled(torch.ones(1), n), torch.ones(1) * n + (1 if n > 2 else 0))


def test_numbers_that_no_size_can_be() -> None:
    """Seeds and hashes may have more than 64 bits."""
    compiled = aot_compile(lambda x, seed: x + seed % 7)
    for seed in (5, 8, 1 << 70, (1 << 70) + 1, 1 << 63, 12, (1 << 62) + 3):
        assert_equal(compiled(torch.ones(1), seed), torch.ones(1) + seed % 7)


def test_wrappers_and_sizes_that_change_too() -> None:
    compiled = aot_compile(lambda w, rate, n: w * rate + n)
    for size in range(3, 8):
        w = TwoTensor(torch.ones(size), torch.arange(float(size)))
        ours, theirs = compiled(w, size / 4, size), w * (size / 4) + size
        assert_equal((ours.a, ours.b), (theirs.a, theirs.b))
    assert len(compiled.recompiles) <= 2
