"""Ranges of sizes: what the trace assumes is how many numbers there are, and these are those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile

STEPS: dict[str, Callable[[int], Any]] = {
    "to it": lambda n: [i for i in range(0, n, 8)],  # noqa: C416
    "to it, and further": lambda n: [i * 2 for i in range(2, n + 5, 7)],
    "down": lambda n: [i * 2 for i in range(n, 2, -7)],
    "by it": lambda n: [i * 2 for i in range(0, n, n)],
    "by a half": lambda n: [i * 2 for i in range(0, n, n // 2)],
    "down by a half": lambda n: [i * 2 for i in range(n, -1, -(n // 2))],
    "from it": lambda n: [i * 2 for i in range(n, n + 3)],
    "backwards from it": lambda n: [i * 2 for i in range(n + 3, n, -1)],
    "nothing": lambda n: [i * 2 for i in range(n, 0, 3)],
    "nothing between": lambda n: [i * 2 for i in range(n, n)],
    "a generator": lambda n: tuple(i * 2 for i in range(n, n + 3)),
    "two": lambda n: [(i, k) for i in range(0, n, 10) for k in range(i, n, 9)],
    "with others": lambda n: {i: [*range(2)] for i in range(0, n, 10)},
}
KEPT: dict[str, Callable[[int], Any]] = {
    "it": lambda n: range(0, n, 8),
    "in a list": lambda n: [range(n, n + 3), {"range": range(0, n, 7)}],
    "in a text": lambda n: f"{range(0, n, 8)}",
    "its length": lambda n: (len(range(0, n, 30)), len(range(n, n + 2)), bool(range(n, n))),
    "its parts": lambda n: (range(n, n + 5)[2], range(n, n + 5)[-1], list(range(n, n + 9, 2)[1:3]), range(0, n, 30)[0]),
    "its ends": lambda n: (range(0, n, 8).stop, range(n, n + 3).start),
    "by a function": lambda n: [*enumerate(range(0, n, 8)), *zip(range(n, n + 2), range(2), strict=True)],
    "reversed": lambda n: [i * 2 for i in reversed(range(0, n, 8))],
    "a part": lambda n: [i * 2 for i in range(0, n, 8)[1:]],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", [*STEPS, *KEPT])
def test_ranges_are_those_of_eager_mode(name: str, dynamic: bool | None) -> None:
    step: Any = {**STEPS, **KEPT}[name]

    def program(x: torch.Tensor) -> Any:
        return x * 2, step(x.shape[0])

    compiled = aot_compile(program, dynamic=dynamic)
    for n in (20, 21, 22, 25, 29, 20):
        assert repr(compiled(torch.ones(n))[1]) == repr(program(torch.ones(n))[1])
    if name in STEPS:
        assert len(compiled.recompiles) <= 3


def test_ranges_that_objects_keep() -> None:
    kept: list[list[range]] = [[], []]

    def program(x: torch.Tensor, kept: list[range]) -> torch.Tensor:
        kept.append(range(x.shape[0], x.shape[0] + 3))
        return x * 2

    compiled = aot_compile(program)
    for n in (5, 6, 7, 8):
        compiled(torch.ones(n), kept[0])
        program(torch.ones(n), kept[1])
    assert repr(kept[0]) == repr(kept[1])


@pytest.mark.parametrize("step", [1, 2, 3, 7, -1, -3])
def test_each_number_of_steps(step: int) -> None:
    def program(x: torch.Tensor, m: int) -> tuple[Any, ...]:
        n = x.shape[0]
        found = [i for i in range(m, n, step)], [i for i in range(n, m, step)]  # noqa: C416
        return x + 1, *found, [i for i in range(n - 2, n + m, step)]  # noqa: C416

    compiled = aot_compile(program, cache_limit=256)
    for n in range(2, 12):
        for m in (-5, 0, 3, 9):
            assert compiled(torch.ones(n), m)[1:] == program(torch.ones(n), m)[1:]


def test_one_compilation_for_sizes_of_as_many_parts() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return torch.cat([x[i : i + n // 2] * i for i in range(0, n, n // 2)])

    compiled = aot_compile(program, dynamic=True)
    for n in (8, 10, 12, 20):
        assert torch.equal(compiled(torch.ones(n)), program(torch.ones(n)))
    assert not compiled.recompiles


def test_a_step_of_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="arg 3 must not be zero"):
        aot_compile(lambda x: [i * x for i in range(0, x.shape[0], 0)], dynamic=True)(torch.ones(4))
    with pytest.raises(ValueError, match="arg 3 must not be zero"):
        aot_compile(lambda x: [i * x for i in range(0, 8, x.shape[0] - 4)], dynamic=True)(torch.ones(4))
