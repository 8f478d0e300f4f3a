"""Advice: finds what is slower than it could be, why, and what to write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.wrapper import service_of
from subclass_aot.testing.benchmark.rows import OPERATORS, Row

SLOW_FLATTEN_US = 1.0
"""A method that returns two constants takes a tenth of it."""
SLOW_CONTEXT_US = 1.0
"""Two tuples of some numbers compare in a tenth of it."""
MANY = 1 / 3
"""Of the operators that work: so many through `to_plain` are many."""


@dataclass(frozen=True)
class Advice:
    """One thing that could be better.

    Args:
        what: What was found.
        instead: What to write.
    """

    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.what}.\n  Instead: {self.instead}"


def advise(make: Callable[[], torch.Tensor], rows: Sequence[Row]) -> Iterator[Advice]:
    """Says what is far from what it could be.

    Args:
        make: Gives a new tensor of the class.
        rows: What was measured of it.
    """
    tensor = make().detach()
    yield from _torch_function(type(tensor))
    yield from _flatten(rows)
    yield from _context(make)
    yield from _replay(tensor)
    yield from _through_plain(type(tensor), rows)
    yield from _refused(rows)


def _torch_function(cls: type[torch.Tensor]) -> Iterator[Advice]:
    if cls.__torch_function__ is not _torch.wrappers.disabled_torch_function_impl:
        yield Advice(
            f"{cls.__name__} does not turn __torch_function__ off, so each operator and each read of a property "
            "passes through Python once more",
            "__torch_function__ = torch._C._disabled_torch_function_impl, unless the class needs its own",
        )


def _flatten(rows: Sequence[Row]) -> Iterator[Advice]:
    for row in rows:
        if row.name == "__tensor_flatten__" and row.us is not None and row.us > SLOW_FLATTEN_US:
            yield Advice(
                f"__tensor_flatten__ takes {row.us:.2g} us, and a call may ask each tensor",
                "return constant names and a context that the constructor made, and compute nothing",
            )


def _context(make: Callable[[], torch.Tensor]) -> Iterator[Advice]:
    (_, one), (_, other) = (make().__tensor_flatten__() for _ in range(2))  # type: ignore[attr-defined]
    kind, better = type(one).__name__, "a tuple of numbers and strings, or a frozen dataclass of them"
    try:
        hash(one)
    except TypeError:
        yield Advice(f"the context, a {kind}, cannot be hashed, so it is compared part by part", better)
    if not _equal(one, other):
        yield Advice(
            f"the contexts of two new tensors, each a {kind}, differ, so a call with another tensor compiles anew",
            f"{better}, that are equal where the tensors are alike",
        )
    elif (took := _microseconds(lambda: _equal(one, other))) > SLOW_CONTEXT_US:
        yield Advice(f"comparing two contexts, each a {kind}, takes {took:.2g} us", better)


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception as error:  # of the `__eq__` of a class
        pass_on_interruption(error)
        return False


def _microseconds(function: Callable[[], object], calls: int = 100) -> float:
    """Returns the shortest of some times: longer ones say how busy the machine was."""
    took = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        took.append((time.perf_counter() - start) / calls * 1e6)
    return min(took)


def _replay(tensor: torch.Tensor) -> Iterator[Advice]:
    """Yields advice for a class that is not declared, whose constructor runs at each call."""
    if Declaration.of(type(tensor)) is not None:
        return
    plan = FlattenPlan.of([tensor])
    plan.wrap(plan.unwrap([tensor]))
    constants = plan.wrap.__globals__.values()  # of the generated function; one of them may make replays
    known = [vars(each)["why_not"] for each in constants if "why_not" in getattr(each, "__dict__", ())]
    why = known[0] if known else "its kind of class is not, or replay is off"
    if why is not None:
        yield Advice(
            f"the constructor runs at each call and is not replayed: {why}",
            "a constructor that makes the outer tensor, sets inner tensors and context as attributes, and no more",
        )


def _through_plain(cls: type[torch.Tensor], rows: Sequence[Row]) -> Iterator[Advice]:
    if Declaration.of(cls) is None:
        return
    works = [row.name for row in rows if row.group == "operator" and not row.refused]
    plain = [name for name in works if "to_plain" in service_of(cls, OPERATORS[name][0]).how]  # type: ignore[arg-type]
    if len(plain) > MANY * len(works):
        named = ", ".join(plain)
        yield Advice(
            f"{len(plain)} of {len(works)} operators run through to_plain, which makes it whole: {named}",
            f"a rule for those that a program needs often: @{cls.__name__}.implements(torch.ops.aten.{plain[0]}...)",
        )


def _refused(rows: Sequence[Row]) -> Iterator[Advice]:
    refused = [row.name for row in rows if row.group == "operator" and row.refused]
    if refused:
        yield Advice(
            f"{len(refused)} operators that a linear layer or AdamW needs are refused: {', '.join(refused)}",
            "a rule for those that the class is to have; the table has the first line of each reason",
        )
