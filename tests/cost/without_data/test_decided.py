"""Loops that wait for values nobody knows end where the known operands decide, as at the longest length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.cost.without_data import assumptions
from subclass_aot.errors import DataDependentError, TraceError

LONGEST = 5


def tokens(n: int = 3) -> torch.Tensor:
    return torch.randint(0, 100, (n,))


def over(step: int, n: int = 3) -> torch.Tensor:
    return torch.full((n,), step >= LONGEST)


def until_all(step: Callable[[torch.Tensor, int], torch.Tensor], ends: Callable[[torch.Tensor], Any]) -> int:
    done, steps = torch.zeros(3, dtype=torch.bool), 0
    while not ends(done):
        steps += 1
        done = step(done, steps)
    return steps


def all_of(done: torch.Tensor) -> torch.Tensor:
    return done.sum() == 3


def joined(done: torch.Tensor, step: int) -> torch.Tensor:
    done |= (tokens() == 2) | over(step)
    return done


def waits_for_unfinished() -> int:
    """As transformers' `generate`, with tokens that are padded after the end."""
    unfinished, steps, ended = torch.ones(3, dtype=torch.long), 0, False
    while not ended:
        steps += 1
        found = tokens() * unfinished + 7 * (1 - unfinished)
        unfinished = unfinished & ~(torch.isin(found, torch.tensor([2, 3])) | over(steps))
        ended = bool(unfinished.max() == 0)
    assert (tokens() * unfinished + 7 * (1 - unfinished)).tolist() == [7, 7, 7]
    return steps


def each_row_has_its_length() -> int:
    done, steps, longest = torch.zeros(3, dtype=torch.bool), 0, torch.tensor([2, LONGEST, 3])
    while not bool(done.sum() == 3):
        steps += 1
        done = (tokens() == 2) | (steps >= longest)
    return steps


LOOPS: dict[str, Callable[[], int]] = {
    "or": lambda: until_all(lambda done, n: done | (tokens() == 2) | over(n), all_of),
    "logical or": lambda: until_all(lambda done, n: done.logical_or(tokens() == 2).logical_or(over(n)), all_of),
    "until all are": lambda: until_all(lambda done, n: done | (tokens() == 2) | over(n), torch.all),
    "until none is open": lambda: until_all(lambda done, n: done | (tokens() == 2) | over(n), lambda x: not (~x).any()),
    "gathered": lambda: until_all(
        lambda done, n: torch.cat([done, tokens(1) == 2]).gather(0, tokens()) | over(n), torch.all
    ),
    "in place": lambda: until_all(joined, all_of),
    "where": lambda: until_all(lambda done, n: torch.where(over(n), True, done | (tokens() == 2)), all_of),
    "filled": lambda: until_all(lambda done, n: (done | (tokens() == 2)).masked_fill(over(n), True), all_of),
    "unfinished": waits_for_unfinished,
    "a length for each row": each_row_has_its_length,
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_ends_at_the_longest_length(name: str) -> None:
    with sa.meta(assume=True):
        assert LOOPS[name]() == LONGEST


VALUES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[Any] | None]] = {
    "false and": (lambda x: (x > 2) & torch.zeros(3, dtype=torch.bool), [False] * 3),
    "logical and": (lambda x: x.logical_and(torch.zeros(3)), [False] * 3),
    "no bits": (lambda x: x & torch.zeros(3, dtype=torch.long), [0] * 3),
    "all bits": (lambda x: x | torch.full((3,), -1), [-1] * 3),
    "zero times": (lambda x: x * torch.zeros(3, dtype=torch.long), [0] * 3),
    "times zero": (lambda x: x * 0, [0] * 3),
    "a row decides": (lambda x: x.expand(2, 3)[:, :1] * torch.zeros(2, 3, dtype=torch.long), [[0] * 3] * 2),
    "the first": (lambda x: torch.where(torch.ones(3) > 0, torch.arange(3), x), [0, 1, 2]),
    "the second": (lambda x: torch.where(torch.ones(3) < 0, x, 4), [4] * 3),
    "one bit of a number": (lambda x: x | torch.ones(3, dtype=torch.bool), None),
    "zero times what may be infinite": (lambda x: x.float() * torch.zeros(3), None),
    "a part": (lambda x: (x > 2) & torch.tensor([True, False, False]), None),
    "the unknown one": (lambda x: torch.where(torch.ones(3) > 0, x, 4), None),
    "of nothing": (lambda x: (x > 2) | torch.zeros(3, dtype=torch.bool), None),
    "copied": (lambda x: torch.empty_like(x).copy_(torch.arange(3)), [0, 1, 2]),
    "filled memory": (lambda x: torch.empty_like(x).fill_(2).mul_(3), [6, 6, 6]),
    "written": (lambda x: x.mul_(0), [0] * 3),
    "a part is written": (lambda x: x.index_put_((torch.tensor([0]),), torch.tensor(3)), None),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", VALUES)
def test_what_is_decided(name: str) -> None:
    program, expected = VALUES[name]
    with sa.meta():
        x = tokens()
        found = program(x)
        if expected is None:
            with pytest.raises(DataDependentError, match="assume=True"):
                found.tolist()
        else:
            assert found.tolist() == expected
    if expected is not None:
        assert program(tokens()).tolist() == expected


def test_views_of_what_is_decided_are_forgotten() -> None:
    with sa.meta():
        x = torch.ones(4, dtype=torch.long)
        view = x[:2]
        x.mul_(tokens(4)).mul_(0)
        assert x.tolist() == [0] * 4
        with pytest.raises(DataDependentError):
            view.tolist()


def test_a_loop_that_reads_the_same_for_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assumptions, "MOST_SECONDS", 0.0)
    with sa.meta(assume=True), pytest.raises(TraceError, match=r"a flag \(bool\) 50 times in 0 seconds.*False"):
        while not bool(tokens().sum() == 3):
            pass
