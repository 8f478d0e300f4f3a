"""Products of rows and a weight of codes, in C++, against the exact product with what the codes stand for."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight
from subclass_aot.base import hooks
from subclass_aot.base._torch.quantized import weight_mm
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.tensors import Float8Weight, Int4Weight, NF4Weight, Sparse24Weight
from subclass_aot.tensors.nf4_weight import LEVELS
from subclass_aot.tensors.quantizing.by_rows import MADE_OF, fields_of
from tests.native.places import run_natively

CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in (Float8Weight, Int4Weight, Int8Weight, NF4Weight, Sparse24Weight)
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def products(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built, "products")
    if hooks.products is None:
        pytest.skip("this processor has no such kernels")


def weight_of(name: str, outputs: int, columns: int, dtype: torch.dtype, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(outputs, columns, generator=generator).to(dtype)
    group = {"group": 32} if name == "Int4Weight" else {"block": 32} if name == "NF4Weight" else {}
    return CLASSES[name].from_float(plain, **group)


def rows_of(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(dtype)


def own(x: torch.Tensor, weight: Any, fields: list[torch.Tensor] | None = None) -> torch.Tensor:
    name = type(weight).__name__
    given = list(fields_of(weight)) if fields is None else fields
    return weight_mm(x, given, name, list(LEVELS) if name == "NF4Weight" else [])  # type: ignore[no-any-return]


def is_exact(x: torch.Tensor, weight: Any) -> None:
    """No further from the exact product than the rounding of the dense weight, of the result, and of sums in float."""
    dense = weight.to_plain().double()
    exact, size = x.double() @ dense.t(), x.double().abs() @ dense.abs().t()
    found, near = own(x, weight), torch.finfo(x.dtype).eps
    assert (found.dtype, found.shape, found.is_contiguous()) == (x.dtype, exact.shape, True)
    assert bool(((found.double() - exact).abs() <= exact.abs() * near + size * (near + 1e-5)).all())


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 16, 17, 40])
@pytest.mark.parametrize("outputs, columns", [(1, 32), (5, 96), (4, 1024), (7, 1056), (130, 2080), (0, 64)])
def test_exact(name: str, dtype: torch.dtype, rows: int, outputs: int, columns: int) -> None:
    is_exact(rows_of(rows, columns, dtype), weight_of(name, outputs, columns, dtype))


@pytest.mark.parametrize("name", ["Int4Weight", "NF4Weight"])
@pytest.mark.parametrize("group", [32, 64, 96, 1152, 2304])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_lengths_of_groups(name: str, group: int, rows: int) -> None:
    """Those that end where a part of a row ends, and those that do not."""
    plain = torch.randn(6, 2304, generator=torch.Generator().manual_seed(0))
    for dtype in DTYPES:
        is_exact(rows_of(rows, 2304, dtype), CLASSES[name].from_float(plain.to(dtype), group))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_column_counts(name: str, dtype: torch.dtype) -> None:
    """One element of `x` at a time, alone and among many rows."""
    weight = weight_of(name, 9, 64, dtype)
    dense, x = weight.to_plain(), torch.eye(64, dtype=dtype)
    torch.testing.assert_close(own(x, weight), dense.t(), rtol=0.01, atol=1e-6)
    for i in range(64):
        torch.testing.assert_close(own(x[i : i + 1], weight)[0], dense[:, i], rtol=0.01, atol=1e-6)


def test_each_code_of_float8_counts() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).view(256, 1).expand(256, 32).contiguous()
    weight = Float8Weight(codes, torch.ones(256, 1))
    for rows in (1, 2, 20):
        x = torch.zeros(rows, 32)
        x[:, 5] = 1
        expected = codes[:, 5].float().expand(rows, 256)
        assert expected.isnan().sum() == 2 * rows
        is_nan = (x @ weight.to_plain().t()).isnan()
        found = own(x, weight)
        assert torch.equal(found.isnan(), is_nan) and torch.equal(found[~is_nan], expected[~is_nan])


@pytest.mark.parametrize("name", CLASSES)
def test_values_that_are_not_finite(name: str) -> None:
    weight, x = weight_of(name, 7, 64, torch.float32), rows_of(3, 64, torch.float32)
    x[1, 3], x[2, 7] = torch.inf, torch.nan
    found, expected = own(x, weight), x @ weight.to_plain().t()
    torch.testing.assert_close(found[0], expected[0])
    assert found[2].isnan().all() and not found[1].isfinite().all()
    assert torch.equal(found[1].isnan(), expected[1].isnan())


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("rows", [1, 4, 40])
def test_threads(name: str, rows: int) -> None:
    """Of few rows, each result is one sum, in one order, however many threads there are."""
    weight, x = weight_of(name, 300, 1024, torch.bfloat16), rows_of(rows, 1024, torch.bfloat16)
    expected, before = own(x, weight), torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            found = own(x, weight)
        finally:
            torch.set_num_threads(before)
        assert torch.equal(found, expected) if rows < 40 else torch.allclose(found, expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("name", CLASSES)
def test_written_out_it_is_the_same(name: str) -> None:
    weight, x = weight_of(name, 6, 96, torch.float32), rows_of(3, 96, torch.float32)
    fields, numbers = list(fields_of(weight)), list(LEVELS) if name == "NF4Weight" else []
    torch.testing.assert_close(own(x, weight), WRITTEN_OUT[weight_mm](x, fields, name, numbers))
    assert torch.equal(MADE_OF[name](*fields).to_plain(), weight.to_plain())


@pytest.mark.parametrize("name", CLASSES)
def test_fields_that_do_not_fit_are_refused(name: str) -> None:
    """A kernel would read what is not theirs."""
    weight, x = weight_of(name, 6, 96, torch.float32), rows_of(3, 96, torch.float32)
    fields = list(fields_of(weight))
    others = [
        (x, [fields[0][:-1], *fields[1:]]),
        (x, [fields[0].double(), *fields[1:]]),
        (x, [fields[0], fields[1][:-1], *fields[2:]]),
        (x, [fields[0][:, ::2], *fields[1:]]),
        (x, fields[:1]),
        (x[0], fields),
        (x[:, ::3], fields),
        (x[:, :64].contiguous(), fields),
        (x.bfloat16(), fields),
        (x.double(), fields),
    ]
    for given, parts in others:
        with pytest.raises(RuntimeError):
            own(given, weight, parts)
    with pytest.raises(RuntimeError, match="no product with a Weight"):
        weight_mm(x, fields, "Weight", [])
