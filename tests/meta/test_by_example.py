"""Results with symbols in their sizes, by a formula that is held against an example."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.meta import by_example
from subclass_aot.meta.by_example import infer_by_example
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.symbols import Symbols

aten = torch.ops.aten


def spec_of(*size: Any, stride: tuple[Any, ...]) -> Spec:
    return Spec.make(size, stride)


def test_a_formula_gives_no_answer_where_the_example_does_not_fit() -> None:
    """As where a rule of a user's says something else than torch's."""
    symbols = Symbols()
    n, m = symbols.size(6, "x.size(0)"), symbols.size(5, "x.size(1)")
    x = spec_of(n, m, stride=(m, 1))
    assert infer_by_example(aten.nonzero.default, (x,), {}) is None
    assert infer_by_example(aten.mm.default, (x, x), {}) is None, "what is refused is refused by torch's rule"


def test_a_formula_asks_the_solver_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = Symbols()
    b, n = symbols.size(3, "x.size(0)"), symbols.size(6, "x.size(2)")
    x, y = spec_of(b, 4, n, 8, stride=(32 * n, 8, 32, 1)), spec_of(1, 1, n, 8, stride=(8 * n, 8 * n, 8, 1))

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("sympy is asked")

    monkeypatch.setattr(type(symbols.env), "evaluate_expr", asked)
    monkeypatch.setattr(type(symbols.env), "_maybe_evaluate_static", asked)
    found = infer_by_example(aten.mul.Tensor, (x, y), {})
    assert found is Spec.make(x.size, x.stride)


def test_an_example_is_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    infer = by_example.infer
    monkeypatch.setattr(by_example, "infer", lambda *given: asked.append(given) or infer(*given))
    monkeypatch.setattr(by_example, "_examples", {})
    symbols = Symbols()
    n = symbols.size(6, "x.size(0)")
    x = spec_of(n, 8, stride=(8, 1))
    for number in (1, 1.0, True, 1):
        found = infer_by_example(aten.eq.Scalar, (x, number), {})
        assert found is not None and found.dtype is torch.bool
    assert len(asked) == 3, "1, 1.0 and True have other types"
    with symbols.within_budget():
        half = torch.sym_float(n) / 2
        for _ in range(2):
            infer_by_example(aten.eq.Scalar, (x, half), {})
    assert len(asked) == 5 and not symbols.env.guards, "a hash of a symbol would be a guard"
