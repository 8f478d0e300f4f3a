"""What sympy finds no end with: the sizes stay numbers, and the recompile says so."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base._torch import solver_steps
from subclass_aot.meta.symbols import NoAnswer, Symbols

SAYS = "since with symbols sympy finds no end"


def hard(n: Any, m: Any, k: Any) -> Any:
    """Is a number that takes sympy minutes: quotients and remainders in one another."""
    for i in range(4):
        n = (n * m + k * i) // (m // 2 + i + 1) + (n % (k + i)) * (m % (i + 2))
        n = n + (n * k) // (n + m) % (n + 1)
    return n


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_steps, "OF_QUESTION", 3000)


def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * (2 if hard(*x.shape) % 2 else 3), y + 1


def call(compiled: Any, size: tuple[int, ...], other: int) -> None:
    x, y = torch.ones(size), torch.ones(other)
    for ours, eager in zip(compiled(x, y), program(x, y), strict=True):
        assert torch.equal(ours, eager)


def test_the_sizes_that_are_asked_about_stay_numbers_and_others_do_not() -> None:
    compiled = sa.aot_compile(program, fw_compiler="eager")
    call(compiled, (5, 6, 7), 3)
    started = time.monotonic()
    call(compiled, (6, 9, 11), 4)
    assert time.monotonic() - started < 30, "it takes minutes"
    (why,) = compiled.recompiles
    assert why.endswith(f"; args[0].size(0) and args[0].size(1) and args[0].size(2) stay numbers, {SAYS}")
    call(compiled, (6, 9, 11), 7)
    assert len(compiled.recompiles) == 1, "the size of the other tensor is a symbol"
    assert why in compiled.explain()


def test_they_stay_numbers_at_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = sa.aot_compile(program, fw_compiler="eager")
    call(compiled, (5, 6, 7), 3)
    call(compiled, (6, 9, 11), 4)
    counted: list[int] = []
    end = solver_steps.Steps.end
    monkeypatch.setattr(solver_steps.Steps, "end", lambda steps: counted.append(steps.count) or end(steps))  # type: ignore[func-returns-value]
    call(compiled, (7, 10, 12), 5)
    assert not counted and compiled.recompiles[-1].endswith(SAYS) and len(compiled.recompiles) == 2


@pytest.mark.parametrize("marks", [True, False])
def test_sizes_that_are_symbols_from_the_first_call_on(marks: bool) -> None:
    compiled = sa.aot_compile(program, fw_compiler="eager", dynamic=None if marks else True)
    x = torch.ones(5, 6, 7)
    for dim in range(3):
        sa.mark_dynamic(x, dim)
    compiled(x, torch.ones(3))
    assert compiled.recompiles == [] and SAYS in compiled.explain()


def test_sizes_of_a_wrapper_and_of_what_is_inside() -> None:
    compiled = sa.aot_compile(lambda x: program(x, x)[0], fw_compiler="eager")
    for size in ((5, 6, 7), (6, 9, 11), (7, 10, 12)):
        x = torch.arange(float(size[0] * size[1] * size[2])).reshape(size)
        wrapped = sa.TwoTensor(x, -x)
        result = compiled(wrapped)
        assert torch.equal(result.a, program(x, x)[0]) and torch.equal(result.b, program(-x, -x)[0])
    assert all("stay numbers" in why for why in compiled.recompiles) and len(compiled.recompiles) == 2


def test_a_number_of_python_stays_one() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * (2 if hard(n, *x.shape) % 2 else 3)

    compiled = sa.aot_compile(f, fw_compiler="eager")
    for n, size in ((5, (6, 7)), (6, (9, 11)), (7, (10, 12)), (8, (10, 12))):
        assert torch.equal(compiled(torch.ones(size), n), f(torch.ones(size), n))
    assert "sympy finds no end" in compiled.recompiles[0]


def test_all_questions_of_a_trace_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_steps, "OF_TRACE", 200)

    def f(x: torch.Tensor) -> torch.Tensor:
        n, m = x.shape
        return x * sum((n * i) // (m + i) % (i + 3) < i for i in range(1, 40))

    compiled = sa.aot_compile(f, fw_compiler="eager")
    for size in ((5, 6), (7, 9)):
        assert torch.equal(compiled(torch.ones(size)), f(torch.ones(size)))
    assert compiled.recompiles[0].endswith(f"args[0].size(0) and args[0].size(1) stay numbers, {SAYS}")


def test_what_is_counted_is_put_back() -> None:
    from sympy.core.basic import Basic

    make = vars(Basic)["__new__"]
    symbols = Symbols()
    n = [symbols.size(5 + i, f"x.size({i})") for i in range(3)]
    with pytest.raises(NoAnswer) as refused, symbols.within_budget():
        assert vars(Basic)["__new__"] is not make
        bool(hard(*n) == 3)
    assert vars(Basic)["__new__"] is make
    assert refused.value.paths == ["x"] and refused.value.places == ["x.size(0)", "x.size(1)", "x.size(2)"]
    assert bool(n[0] * n[1] > n[0]), "the solver answers afterwards"


def test_other_threads_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import sympy

    monkeypatch.setattr(solver_steps, "OF_TRACE", 10)
    n = sympy.Symbol("n", integer=True)

    def compute() -> None:
        found.append(sum((n + i) * n**i for i in range(50)))

    found: list[Any] = []
    with Symbols().within_budget():
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    assert len(found) == 1
