"""Symbolic sizes: in specs, in shape inference, and what is assumed about them."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from subclass_aot import aot_compile
from subclass_aot.meta import MetaTensor, Spec, new_leaf
from subclass_aot.meta.infer import infer
from subclass_aot.meta.symbols import MoreAssumed, Symbols, is_symbolic, key_of, lasting_key_of, plain

aten: Any = torch.ops.aten


def test_specs_are_interned_by_expression() -> None:
    symbols = Symbols()
    n = symbols.size(8, "x.size(0)")
    spec = Spec.make((n, 3), (3, 1))
    assert spec is Spec.make((n * 2 // 2, 3), (3, 1))
    assert spec is not Spec.make((n + 1, 3), (3, 1))
    assert spec.solver is symbols.env and Spec.make((8, 3), (3, 1)).solver is None
    other = Symbols()
    assert spec is not Spec.make((other.size(8, "x.size(0)"), 3), (3, 1)), "symbols of another trace"


def test_a_number_that_turned_out_to_be_known() -> None:
    symbols = Symbols()
    n = symbols.size(8, "x.size(0)")
    before = lasting_key_of(n)
    spec = Spec.make((n,), (1,))
    assert n == 8  # an assumption
    assert plain(n) == 8 and not is_symbolic(plain(n))
    assert key_of(n) != before and lasting_key_of(n) == before
    assert Spec.make((n,), (1,)) is Spec.make((8,), (1,))
    assert spec.equals(Spec.make((n + 0,), (1,))) or spec.solver is not None


def test_equal_specs_after_an_assumption() -> None:
    symbols = Symbols()
    n, m = symbols.size(8, "x.size(0)"), symbols.size(8, "y.size(0)")
    first, second = Spec.make((n,), (1,)), Spec.make((m,), (1,))
    assert not first.equals(second)
    assert n == m
    assert first.equals(second)


def test_assumptions_are_python() -> None:
    symbols = Symbols()
    n, m = symbols.size(8, "x.size(0)", (2, 16)), symbols.size(4, "x.size(1)")
    assert n % 2 == 0 and n > m
    texts = [text for text, _ in symbols.assumptions(["s0", "s1"])]
    assert {"s0 <= 16", "s1 >= 2", "(s0 % 2) == 0"} <= set(texts)
    assert all(eval(text, {}, {"s0": 8, "s1": 4}) for text in texts)
    assert not all(eval(text, {}, {"s0": 4, "s1": 8}) for text in texts)
    assert all("s1" not in text for text, _ in symbols.assumptions(["s0"])), "of symbols that are in use only"


def test_text_of_nested_expressions() -> None:
    symbols = Symbols()
    n = symbols.size(8, "x.size(0)")
    formulas: list[Any] = [
        lambda n: n // 2 * 3, lambda n: (n + 1) // 2 % 3, lambda n: (n * 2 - 1) * (n // 3), lambda n: -n + 9
    ]  # fmt: skip
    for formula in formulas:
        text = symbols.text(formula(n))
        for value in (8, 11, 14):
            assert eval(text, {}, {"s0": value}) == formula(value), text


def test_inference_with_symbols() -> None:
    symbols = Symbols()
    n = symbols.size(8, "x.size(0)")
    x, w = Spec.make((n, 3), (3, 1)), Spec.make((3, 5), (5, 1))
    assert infer(aten.mm.default, (x, w), {}) is Spec.make((n, 5), (5, 1))
    assert infer(aten.view.default, (x, [-1]), {}) is Spec.make((n * 3,), (1,))
    assert infer(aten.zeros.default, ([n, 2],), {}) is Spec.make((n, 2), (2, 1))
    assert symbols.assumptions(["s0"]) == [("s0 >= 2", "")], "nothing was assumed"


def test_a_leaf_has_symbolic_sizes() -> None:
    n = Symbols().size(8, "x.size(0)")
    leaf = new_leaf(Spec.make((n, 3), (3, 1)))
    assert leaf.shape[0] == n and (leaf @ new_leaf(Spec.make((3, 5), (5, 1)))).shape[1] == 5
    assert type(leaf) is MetaTensor and not leaf.meta_spec.overlaps_itself


def test_demands_are_checked_by_text() -> None:
    symbols = Symbols()
    n = symbols.unbacked()
    torch._check(n >= 3, lambda: "three at least")
    (runtime_assert,) = [d for d in symbols.runtime_asserts() if "3" in d.text({k: "n" for k in d.symints})]
    text = runtime_assert.text(dict.fromkeys(runtime_assert.symints, "n"))
    assert eval(text, {}, {"n": 3}) and not eval(text, {}, {"n": 2})


def test_repeated_operators_make_the_same_numbers() -> None:
    symbols = Symbols()
    first = [symbols.unbacked(), symbols.unbacked("int")]
    assert symbols.take_fresh_unbacked() == first and symbols.take_fresh_unbacked() == []
    symbols.repeat(first)
    assert [symbols.unbacked(), symbols.unbacked()] == first


def test_specs_of_a_trace_go_with_it() -> None:
    symbols = Symbols()
    spec = Spec.make((symbols.size(8, "x.size(0)"),), (1,))
    solver = weakref.ref(symbols.env)
    del symbols, spec
    for method in (ShapeEnv.replace, ShapeEnv._find):  # there torch 2.11 remembers a solver, until another one is used
        method.cache_clear()
    gc.collect()
    assert solver() is None


def test_a_closed_solver_assumes_nothing_more() -> None:
    symbols = Symbols()
    n = symbols.size(8, "x.size(0)")
    assert n > 3
    known = symbols.assumptions()
    with symbols.closed():
        assert n > 2  # follows from what is assumed already
    with pytest.raises(MoreAssumed, match=r"would assume more of symbolic sizes .*: s0 > 5"), symbols.closed():
        assert n > 5
    with pytest.raises(MoreAssumed), symbols.closed():
        try:
            assert n > 5
        except NotImplementedError as error:
            raise ValueError("a compiler's own") from error
    with symbols.closed(), contextlib.suppress(NotImplementedError):  # it got by without
        assert n > 5
    with pytest.raises(ValueError, match="another"), symbols.closed():
        raise ValueError("another")
    assert symbols.assumptions() == known
    assert n > 5 and symbols.assumptions() != known


def test_a_closed_solver_takes_demands_of_numbers_that_depend_on_data() -> None:
    symbols = Symbols()
    number = symbols.unbacked()
    with symbols.closed():
        torch._check(number < 7)
    (found,) = symbols.runtime_asserts()
    assert str(found.expression).endswith("< 7") and found.by == "stated"


def test_solvers_of_equal_programs_are_not_kept() -> None:
    """Torch keeps what a solver has answered in caches of its class."""

    def count() -> int:
        for _ in range(2):  # what holds tensors with symbolic sizes goes first, and then what these hold
            gc.collect()
        return sum(issubclass(type(x), ShapeEnv) for x in gc.get_objects())

    def compile_and_forget() -> int:
        aot_compile(lambda x: (x * 2).sum(), dynamic=True)(torch.ones(4, requires_grad=True)).backward()
        return count()

    first, *others = [compile_and_forget() for _ in range(3)]
    assert max(others) <= first


def test_symbols_whose_making_was_interrupted_are_freed() -> None:
    Symbols.__new__(Symbols).__del__()
