"""Which attributes a program asks the inputs for in vain; what follows from it is in `tests/base/test_missing.py`."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.signature import Absent


def absent(fn: Any, *args: Any) -> tuple[Absent, ...]:
    compiled = aot_compile(fn)
    compiled(*args)
    assert compiled._specializations.latest is not None
    return compiled._specializations.latest.signature.assumptions.absent


def test_what_is_asked_for() -> None:
    x, y = torch.ones(2), torch.ones(2)
    assert absent(lambda x, y: x * getattr(y, "a", 1), x, y) == ((0, ()), (1, ("a",)))
    assert absent(lambda x: getattr(x * 2, "a", x), x) == ((0, ()),), "what is computed is no input"


def test_of_one_that_has_attributes_all_count() -> None:
    x = torch.ones(2)
    x.b = 1  # type: ignore[attr-defined]
    assert absent(lambda x: x * getattr(x, "a", 1), x) == ()


def test_private_names_of_wrappers_are_the_business_of_the_class() -> None:
    x = TwoTensor(torch.ones(2), torch.ones(2))
    assert absent(lambda x: x * getattr(x, "_n", 1) * getattr(x, "n", 1), x) == ((0, ("n",)),)
