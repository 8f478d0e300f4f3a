"""Calls of `int` and `float` on sizes: one compilation serves all sizes, and code is what it was after each trace."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.subjects.numbers import calls as number_calls
from subclass_aot.testing import difference

WHOLE_HEAP = True
"""The library finds functions and holders of this module among all objects."""


def inside(x: torch.Tensor) -> Any:
    def half(n: float) -> int:
        return int(n * 0.5)

    return x[: half(x.shape[0])]


def in_a_block(x: torch.Tensor) -> Any:
    try:
        n = int(x.shape[0] / 0.5)
        assert n > 3, n
        return x * int(n)
    except (ValueError, ZeroDivisionError):
        return x


def with_attributes(x: torch.Tensor) -> Any:
    kinds: list[object] = [int, float]
    return x * int(x.shape[0] * 0.5) * (2 if type(x.shape[0]) is int and kinds == [int, float] else 3)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a half": lambda x: x[: int(x.shape[0] * 0.5)],
    "a third": lambda x: x[: int(x.shape[0] / 3)],
    "below zero": lambda x: x * int(-x.shape[0] / 3),
    "as Python rounds": lambda x: x * int(x.shape[0] * 0.1 * 3),
    "a root": lambda x: x[: int(math.sqrt(x.shape[0]))],
    "a power": lambda x: x[: int(x.shape[0] ** 0.5)],
    "rounded down": lambda x: x[: int(x.shape[0] // 2.0)],
    "a size": lambda x: x[: int(x.shape[0]) - 1],
    "a sum": lambda x: x * int(x.shape[0] * 0.3 + x.shape[1] * 0.7),
    "float": lambda x: x * float(x.shape[0]),
    "float of a float": lambda x: x / float(x.shape[0] * 0.3),
    "both": lambda x: x * int(float(x.shape[0]) * 0.5),
    "map": lambda x: x.new_ones(list(map(int, x.shape))) * sum(map(float, x.shape)),
    "a comprehension": lambda x: x.new_ones([int(n * 0.5) for n in x.shape]),
    "a generator": lambda x: x.new_ones(tuple(int(n * 1.5) for n in x.shape)),
    "a function inside": inside,
    "in a block": in_a_block,
    "the class itself": with_attributes,
    "a result": lambda x: (x + 1, int(x.shape[0] * 0.5), float(x.shape[0])),
    "of a text": lambda x: x * int("3") * int("11", 2) * float("0.5") + int(x.shape[0] * 0.5),
    "a class for it": lambda x: x * (2 if isinstance(int(x.shape[0] * 0.5), int) else 3),
    "random rows": lambda x: x[torch.arange(x.shape[0])[: int(x.shape[0] * 0.75)]],
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(map(same, a, b))
    return not difference(a, b) if isinstance(a, torch.Tensor) else type(a) is type(b) and a == b


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name: str, dynamic: bool | None) -> None:
    program: Any = PROGRAMS[name]
    code = program.__code__
    compiled = aot_compile(program, dynamic=dynamic)
    for n in (14, 15, 16, 19, 14, 22, 40, 41):
        x = torch.rand(n, 60 - n, requires_grad=True)
        assert same(compiled(x), program(x))
        assert program.__code__ is code
    assert len(compiled.recompiles) == (0 if dynamic else 1)


class Halves:
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.shape[0] * 0.5)]

    @staticmethod
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x.repeat(int(x.shape[0] / 0.5))


FROZEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "of the module": in_a_block,
    "in a dict": PROGRAMS["a third"],
    "a method": Halves().of,
    "a static method": Halves.twice,
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", FROZEN)
def test_functions_that_the_collector_leaves_alone(name: str) -> None:
    """As in a server that forks: `gc.freeze`."""
    gc.collect()
    gc.freeze()
    try:
        compiled = aot_compile(FROZEN[name], dynamic=True)
        for n in (14, 15, 22, 41):
            assert same(compiled(torch.ones(n)), FROZEN[name](torch.ones(n)))
        assert not compiled.recompiles
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_what_has_no_whole_part_is_an_error(factor: float) -> None:
    compiled = aot_compile(lambda x: x * int(x.shape[0] * factor), dynamic=True)
    with pytest.raises((OverflowError, ValueError), match="cannot convert float"):
        compiled(torch.ones(4))


def test_great_numbers_are_exact() -> None:
    def program(x: torch.Tensor) -> list[Any]:
        return [int(x.shape[0] * 2.0**60), int(float(x.shape[0] * 2**54 + 1)), int(x.shape[0] * 1e300)]

    compiled = aot_compile(program)
    for n in (4, 5, 6, 7):
        assert compiled(torch.ones(n)) == program(torch.ones(n))


def test_numbers_that_data_decides() -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[: int(n.item())] * float(n.item())

    compiled = aot_compile(program)
    for n in (2, 3, 4, 5, 6, 7):
        assert not difference(compiled(torch.ones(9), torch.tensor(n)), program(torch.ones(9), torch.tensor(n)))
    assert len(compiled.recompiles) == 1


def test_whole_parts_of_what_data_decides_are_read() -> None:
    def program(x: torch.Tensor, r: float) -> torch.Tensor:
        return x * int(r * 2)

    compiled = aot_compile(program)
    for r in (1.2, 1.3, 2.6, -0.2, 1.4):
        assert not difference(compiled(torch.ones(3), r), program(torch.ones(3), r))
    with pytest.raises(ValueError, match="NaN"):
        compiled(torch.ones(3), math.nan)


def test_a_function_of_that_name() -> None:
    names: dict[str, Any] = {"int": lambda n: 7}
    exec("def program(x): return x * int(x.shape[0] * 0.5)", names)  # noqa: S102
    compiled = aot_compile(names["program"])
    for n in (4, 5, 6):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 7.0))
    assert len(compiled.recompiles) == 1


def test_functions_that_die_are_forgotten() -> None:
    def made() -> FunctionType:
        def program(x: torch.Tensor) -> torch.Tensor:
            return x * int(x.shape[0] * 0.25)

        return program

    function = made()
    aot_compile(function, dynamic=True)(torch.ones(8))
    assert function in number_calls._calling
    died = weakref.ref(function)
    del function
    gc.collect()
    assert died() is None


def test_functions_that_each_trace_makes_anew() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        names: dict[str, Any] = {}
        exec("def half(n): return int(n * 0.5)", names)  # noqa: S102
        return x[: names["half"](x.shape[0])]

    compiled = aot_compile(program)
    for n in (4, 6, 8):
        assert torch.equal(compiled(torch.ones(n)), program(torch.ones(n)))


def test_a_generator_that_runs_already() -> None:
    def halves(sizes: list[Any]) -> Iterator[int]:
        yield 0
        while True:
            yield int(sizes[0] * 0.5)

    def program(x: torch.Tensor) -> torch.Tensor:
        sizes = [x.shape[0]]
        steps = halves(sizes)
        next(steps)
        return x * next(steps)

    compiled = aot_compile(program)
    for n in (4, 6, 8, 9):
        assert torch.equal(compiled(torch.ones(n)), program(torch.ones(n)))
    assert len(compiled.recompiles) == 1


def test_code_is_put_back_after_an_error() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if int(x.shape[0] * 0.5) > 3:
            raise ValueError("long")
        return x

    code = program.__code__
    compiled = aot_compile(program, dynamic=True)
    compiled(torch.ones(4))
    with pytest.raises(ValueError, match="long"):
        compiled(torch.ones(12))
    assert program.__code__ is code


def test_without_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_calls, "is_on", lambda name: False)
    compiled = aot_compile(lambda x: x * int(x.shape[0] * 0.5))
    for n in (4, 6, 8):
        assert torch.equal(compiled(torch.ones(n)), torch.ones(n) * (n // 2))
    assert len(compiled.recompiles) == 2


@pytest.mark.parametrize("name", ["int", "floor"])
def test_inductor_computes_them_too(name: str) -> None:
    names: dict[str, Any] = {"floor": math.floor, "int": int}
    text = f"def program(x): return (x[: int(x.shape[0] * 0.1 * 3)] * 2).sum() * {name}(x.shape[0] * 0.7 + 0.2)"
    exec(text, names)  # noqa: S102
    program: Any = names["program"]
    compiled = aot_compile(program, fw_compiler="inductor", dynamic=True)
    for n in (10, 12, 24, 30):
        x = torch.rand(n, requires_grad=True)
        assert not difference(compiled(x), program(x))
    assert not compiled.recompiles, compiled.recompiles
