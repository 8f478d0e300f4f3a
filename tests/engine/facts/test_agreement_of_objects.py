"""What says whether a call fits must say one thing of random objects, too, whoever holds them."""

from __future__ import annotations

import random
import types
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import aot_compile
from subclass_aot.base.refused import Refused
from subclass_aot.errors import SubclassAotError
from tests.engine.facts.objects import Maker, Sub
from tests.engine.facts.test_agreement import answers


def disagreement(draw: random.Random, passed: bool, held: bool, asks: bool) -> str:
    """Compiles for one tree of objects, changes something in it, and asks; says what is wrong, "" if nothing is.

    Args:
        draw: What objects and changes are drawn with.
        passed: Whether a tree is an argument.
        held: Whether the function holds one.
        asks: Whether the function may ask for attributes that are not there.
    """
    Sub.level = 1
    maker = Maker(draw)
    roots = types.SimpleNamespace(passed=maker.value() if passed else None, held=maker.value() if held else None)
    box = types.SimpleNamespace(value=roots.held)

    def fn(x: Any, passed: Any) -> Any:
        return (getattr(passed, "other", 1), box, x * 2)[2] if asks else (box, x * 2)[1]

    def of(x: Any, passed: Any) -> Any:
        return (passed, box, x * 2)[2]

    compiled, x = aot_compile(fn if asks else of, dynamic=False), torch.ones(2)
    try:
        compiled(x, roots.passed)
        specialization = compiled._specializations.latest
        assert specialization is not None
        same = answers(specialization, compiled.fn, (x, roots.passed))
        if set(same.values()) != {True}:
            return f"of the same call: {same}"
        for _ in range(draw.randrange(1, 3)):
            maker.change(roots)
        box.value = roots.held
        same = answers(specialization, compiled.fn, (x, roots.passed))
    except (SubclassAotError, Refused, RecursionError):  # such as of a list that holds itself
        return ""
    return "" if len(set(same.values())) == 1 else f"{same}"


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([(True, False), (False, True), (True, True)]), st.booleans())
def test_random_objects(seed: int, where: tuple[bool, bool], asks: bool) -> None:
    assert disagreement(random.Random(seed), *where, asks) == ""
