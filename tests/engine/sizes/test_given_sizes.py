"""Sizes that another tracer made symbols of, and what becomes of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, trace_joint
from subclass_aot.base import _torch
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.objects import sized
from subclass_aot.engine.sizes import GivenSizes, symbols_of
from subclass_aot.engine.trace import Attempt, trace_arguments
from subclass_aot.meta.symbols import Symbols


@pytest.fixture
def theirs() -> Symbols:
    """The symbols of the other tracer."""
    return Symbols()


def meta(*size: Any) -> torch.Tensor:
    return torch.empty(size, device="meta")


def assumed(theirs: Symbols) -> list[str]:
    """What it has to guard, with the names that it gave to symbols."""
    names = {str(symbol): name for symbol, name in zip(theirs.symints, ("n", "m"), strict=False)}
    return [re.sub(r"\bs\d+", lambda found: names[found[0]], str(guard.expr)) for guard in theirs.env.guards]


def test_a_trace_has_the_symbols_that_it_is_given(theirs: Symbols) -> None:
    n = theirs.size(4, "n")
    arguments = Arguments.of(lambda x: None, (torch.ones(4, 3),), {})
    (fake,), symbols = GivenSizes(theirs.env, {"args[0]": meta(n, 3)}).fakes(arguments)
    assert symbols.env is theirs.env and fake.meta_spec.size == (n, 3) and fake.meta_spec.device == torch.device("cpu")


def test_sizes_inside_a_wrapper_may_be_others_than_outside(theirs: Symbols) -> None:
    n, m = theirs.size(4, "n"), theirs.size(5, "m")
    arguments = Arguments.of(lambda x: None, (TwoTensor(torch.ones(4), torch.ones(4)), torch.ones(2)), {})
    (fake, dense), _ = GivenSizes(theirs.env, {"args[0]": TwoTensor(meta(n), meta(m))}).fakes(arguments)
    assert fake.a.meta_spec.size == (n,) and fake.b.meta_spec.size == (m,) and dense.meta_spec.size == (2,)


def test_a_number_is_brought_by_the_size_of_a_tensor(theirs: Symbols) -> None:
    n = theirs.size(7, "n")
    arguments = Arguments.of(lambda x: None, (sized(7),), {})
    (fake,), _ = GivenSizes(theirs.env, {"args[0]": n}).fakes(arguments)
    assert fake.meta_spec.size == (n, 0)


def test_what_must_be_known_is_guarded_by_whom_it_belongs_to(theirs: Symbols) -> None:
    n, m = theirs.size(4, "n"), theirs.size(5, "m")
    sizes = GivenSizes(theirs.env, {"args[0]": meta(n), "args[1]": meta(m), "args[10]": meta(m)})
    left = sizes.without(["args[0].a"])
    assert left and left.examples.keys() == {"args[1]", "args[10]"} and assumed(theirs) == ["Eq(n, 4)"]
    assert not left.without([]) and assumed(theirs) == ["Eq(n, 4)", "Eq(m, 5)"]
    assert not GivenSizes(theirs.env, {"args[0]": meta(3)})


def test_what_a_trace_assumes_is_guarded_by_whom_it_belongs_to(theirs: Symbols) -> None:
    n = theirs.size(4, "n")
    x = torch.ones(4)
    arguments = Arguments.of(lambda x: None, (x,), {})
    sizes = GivenSizes(theirs.env, {"args[0]": meta(n)})
    trace = trace_arguments(
        lambda x: x.view(2, -1) * x.shape[0] if x.shape[0] % 2 == 0 else x, Attempt(arguments, sizes)
    )
    assert "Eq(Mod(n, 2), 0)" in assumed(theirs) and "n > 3" not in assumed(theirs)
    symbols = trace.signature.assumptions.symbols
    assert symbols is not None and symbols.assumptions() == []
    with symbols.closed():
        assert n > 3
    assert "n > 3" in assumed(theirs)
    assert "sym_size" in str(trace.graph_module.graph) and "sym_size" not in str(trace_joint(torch.sin, x).graph_module)


def test_which_symbols_sizes_tell(theirs: Symbols) -> None:
    n, m = (_torch.symbolic.expression_of(theirs.size(k, str(k))) for k in (4, 5))
    a, b = theirs.symints[n], theirs.symints[m]
    assert symbols_of(meta(a, 3)) == {n} and symbols_of(TwoTensor(meta(a), meta(b))) == {n, m}
    assert symbols_of(meta(2 * a)) == set() and symbols_of(a + b) == {n, m}
