"""Operators whose result depends on data: what the rules say of dtypes, known sizes and strides is what comes out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.errors import DataDependentError
from subclass_aot.meta import Spec
from subclass_aot.meta.infer import infer
from subclass_aot.meta.symbols import Symbols, is_symbolic, unbacked_sizes

aten: Any = torch.ops.aten
X = torch.tensor([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [1.0, 0.0, 2.0]])
COUNTS = torch.tensor([2, 0, 3])

CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "nonzero": (aten.nonzero.default, (X,)),
    "masked_select": (aten.masked_select.default, (X, X > 0)),
    "unique": (aten._unique2.default, (X, True, True, True)),
    "unique without inverse": (aten._unique2.default, (X,)),
    "_unique": (aten._unique.default, (X, True, True)),
    "unique of columns": (aten.unique_dim.default, (X, 1)),
    "unique of rows": (aten.unique_dim.default, (X, -2)),
    "runs": (aten.unique_consecutive.default, (X, True, True)),
    "runs of columns": (aten.unique_consecutive.default, (X, True, True, 1)),
    "runs of rows": (aten.unique_dim_consecutive.default, (X, 0)),
    "bincount": (aten.bincount.default, (COUNTS,)),
    "bincount with weights": (aten.bincount.default, (COUNTS, torch.rand(3))),
    "bincount with double weights": (aten.bincount.default, (COUNTS, torch.rand(3, dtype=torch.float64))),
    "repeat_interleave": (aten.repeat_interleave.Tensor, (COUNTS,)),
}


@pytest.mark.parametrize("case", CASES)
def test_rules(case: str) -> None:
    func, args = CASES[case]
    expected = func(*args)
    specs = tuple(Spec.of(a) if isinstance(a, torch.Tensor) else a for a in args)
    with unbacked_sizes(Symbols()):
        found = infer(func, specs, {})
    expected, found = [x if isinstance(x, tuple) else (x,) for x in (expected, found)]
    for real, spec in zip(expected, found, strict=True):
        assert real.dtype is spec.dtype and real.dim() == len(spec.size)
        for n, known in zip(real.shape, spec.size, strict=True):
            assert is_symbolic(known) or n == known
        strides = real.stride(), spec.stride
        innermost = [[d for d, step in enumerate(s) if type(step) is int and step == 1] for s in strides]
        assert innermost[0] == innermost[1], "the dimension whose elements are neighbours in memory"


ITEMS = [(torch.float32, "SymFloat"), (torch.int64, "SymInt"), (torch.bool, "SymBool")]


@pytest.mark.parametrize(("dtype", "kind"), ITEMS)
def test_items(dtype: torch.dtype, kind: str) -> None:
    with unbacked_sizes(Symbols()):
        number = infer(aten._local_scalar_dense.default, (Spec.make((), (), 0, dtype),), {})
    assert type(number).__name__ == kind


def test_without_symbols_it_is_an_error() -> None:
    with pytest.raises(DataDependentError):
        infer(aten.nonzero.default, (Spec.of(X),), {})


def test_each_time_another_number() -> None:
    with unbacked_sizes(Symbols()):
        first, second = (infer(aten.masked_select.default, (Spec.of(X), Spec.of(X > 0)), {}) for _ in range(2))
    assert first is not second
