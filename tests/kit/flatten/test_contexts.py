"""Contexts that hold symbolic numbers, and what becomes of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot.kit.flatten.contexts import Repeated, known, patterned, restrided
from subclass_aot.meta.symbols import Symbols, plain


class Held(NamedTuple):
    n: Any
    name: str = "held"


@dataclass(frozen=True)
class Frozen:
    sizes: Any
    inner: Any = None


class Other:
    def __init__(self, n: Any) -> None:
        self.n, self.name = n, "other"


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "number": lambda n: n,
    "sum": lambda n: n + 1,
    "tuple": lambda n: (1, n),
    "size": lambda n: torch.ones(2, n, device="meta").size() if isinstance(n, int) else torch.Size([2, n]),
    "list": lambda n: ["x", [n]],
    "dict": lambda n: {"n": n, "m": 3},
    "named": Held,
    "dataclass": lambda n: Frozen((n, 2), Frozen(n * 2)),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_what_is_known_holds_numbers_of_the_call(hold: Callable[[Any], Any]) -> None:
    n: Any = Symbols().size(8, "x.size(0)")
    given, expected = hold(n), hold(8)
    made = known(given)
    assert made == expected and type(made) is type(expected) and repr(made) == repr(expected)
    assert made is not given and known(expected) is expected
    assert plain(n) == 8, "that is assumed from now on"


def test_numbers_in_attributes_of_an_object() -> None:
    n: Any = Symbols().size(8, "x.size(0)")
    given = Other(n)
    made = known(given)
    assert type(made) is Other and (made.n, made.name) == (8, "other") and given.n is n
    assert known(made) is made and known(Other) is Other


def test_what_equals_the_strides_by_chance_stays() -> None:
    """`(True, 1)` is equal to the strides of a tensor of size `[n, 1]`, and repeats nothing."""
    n: Any = Symbols().size(5, "x.size(0)")
    assert patterned((True, 1), (n, 1), (1, 1)) == (True, 1)
    assert patterned((n, 1), (3, n), (n, 1)) == Repeated("stride", None)
    assert restrided((True, 1), (1, 1), (3, 1)) == (True, 1) and restrided((1, 1), (1, 1), (3, 1)) == (3, 1)
