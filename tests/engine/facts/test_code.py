"""Hashes of code."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.engine.facts import source_of


def _class(factor: int, rule: int = 1) -> Any:
    class Weight(sa.WrapperTensor):
        codes: torch.Tensor

        def outer_metadata(self) -> sa.Outer:
            return sa.Outer.like(self.codes)

        def to_plain(self) -> torch.Tensor:
            return self.codes * 2 if factor == 2 else self.codes * 3

    if rule == 1:

        @Weight.implements(torch.ops.aten.sin.default)
        def first(x: Any) -> Any:
            return x
    else:

        @Weight.implements(torch.ops.aten.sin.default)
        def second(x: Any) -> Any:
            return x + 1

    return Weight


def test_functions_are_told_apart_by_code_and_defaults() -> None:
    functions: list[Any] = [lambda x: x, lambda x: x + 1, lambda x: x + 2, lambda x, y=1: x, lambda x, y=2: x]
    functions.append(lambda x: [lambda: 1 for _ in x])
    functions.append(lambda x: [lambda: 2 for _ in x])
    assert len({source_of(f) for f in functions}) == len(functions)
    assert source_of(functools.partial(functions[0], 1)) == source_of(functions[0])


def test_rules_belong_to_a_class() -> None:
    assert source_of(_class(2)) == source_of(_class(2))
    assert source_of(_class(2)) != source_of(_class(2, rule=2))


def test_methods_belong_to_a_class() -> None:
    class First(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input

    before = source_of(First)
    First.forward = lambda self, input: input + 1  # type: ignore[method-assign, assignment]
    assert source_of(First) != before


@pytest.mark.parametrize("thing", [torch.sin, len, torch.nn.Linear(1, 1), torch.Tensor])
def test_anything_has_one(thing: Any) -> None:
    assert source_of(thing) == source_of(thing)


def test_code_that_has_no_hash() -> None:
    """Dynamo makes such code."""

    def odd(x: int) -> int:
        return x + 1

    same = odd.__code__.replace(co_consts=(*odd.__code__.co_consts, {}))
    odd.__code__ = same
    assert source_of(odd) == source_of(odd) != source_of(test_code_that_has_no_hash)
