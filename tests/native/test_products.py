"""Products of rows and a weight in eight bits, in C++: torch's own product, up to the order of sums."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from subclass_aot.base import _torch, hooks
from tests.native.places import run_natively

torch_mm, own_mm = _torch.quantized.int8_mm, _torch.quantized.own_int8_mm


@pytest.fixture(autouse=True)
def products(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built, "products")
    if hooks.products is None:
        pytest.skip("this processor has no such kernels")


def operands(rows: int, length: int, outputs: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(rows + 10 * length + outputs)
    x = torch.randn(rows, length, generator=generator).to(dtype)
    codes = torch.randint(-128, 128, (outputs, length), generator=generator, dtype=torch.int8)
    return x, codes, torch.rand(outputs, generator=generator).to(dtype)


def is_exact(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor, found: torch.Tensor) -> None:
    """No further from the exact product than one rounding to bfloat16, and a little for sums in float."""
    exact = x.double() @ (codes.double() * scale.double()[:, None]).t()
    size = x.double().abs() @ (codes.double().abs() * scale.double()[:, None]).t()
    assert (found.dtype, found.shape, found.is_contiguous()) == (x.dtype, exact.shape, True)
    assert bool(((found.double() - exact).abs() <= exact.abs() * 2**-8 + size * 1e-5).all())


@pytest.mark.parametrize("length", [32, 64, 96, 1024, 3584, 6144, 6176, 8192])
@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 5, 7, 64, 257])
def test_one_row(length: int, outputs: int) -> None:
    given = operands(1, length, outputs)
    is_exact(*given, own_mm(*given))


@pytest.mark.parametrize("rows", [0, 2, 3, 8, 9, 33])
def test_more_rows(rows: int) -> None:
    given = operands(rows, 96, 64)
    is_exact(*given, own_mm(*given))


def test_each_code_counts() -> None:
    """One element of `x` at a time, and each code there is."""
    codes = torch.arange(-128, 128).to(torch.int8).repeat(2)[: 8 * 64].view(8, 64)
    scale = torch.ones(8, dtype=torch.bfloat16)
    for i in range(64):
        x = torch.zeros(1, 64, dtype=torch.bfloat16)
        x[0, i] = 1
        assert torch.equal(own_mm(x, codes, scale)[0], codes[:, i].bfloat16())


def test_values_that_are_not_finite() -> None:
    x, codes, scale = operands(1, 64, 5)
    x[0, 3], codes[2, 3], codes[3, 3] = torch.inf, 0, 5
    for given in ((x, codes, scale), (-x, codes, scale), (x * torch.nan, codes, scale)):
        torch.testing.assert_close(own_mm(*given), torch_mm(*given), equal_nan=True)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads: int) -> None:
    """Each result is one sum, in one order, however many threads there are."""
    given = operands(1, 4096, 300)
    expected, before = own_mm(*given), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(own_mm(*given), expected)
    finally:
        torch.set_num_threads(before)


def _others() -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    x, codes, scale = operands(1, 64, 32)
    yield "x with gaps", (operands(1, 128, 32)[0][:, ::2], codes, scale)
    yield "floats", operands(1, 64, 32, torch.float32)
    yield "half", operands(1, 64, 32, torch.float16)
    yield "x as a vector", (x[0], codes, scale)
    yield "codes that are transposed", (x, operands(1, 32, 64)[1].t(), scale)
    yield "lengths that differ", (x, operands(1, 32, 32)[1], scale)
    yield "too few scales", (x, codes, scale[:-1])
    yield "scales of another dtype", (x, codes, scale.float())
    yield "codes of another dtype", (x, codes.int(), scale)


OTHERS: dict[str, tuple[torch.Tensor, ...]] = dict(_others())


@pytest.mark.parametrize("name", OTHERS)
def test_what_it_does_not_serve_is_torchs(name: str) -> None:
    results: list[Any] = []
    for func in (torch_mm, own_mm):
        try:
            results.append(func(*OTHERS[name]))
        except (RuntimeError, IndexError) as error:
            results.append(str(error).partition("\n")[0])
    assert type(results[0]) is type(results[1])
    if isinstance(results[0], str):
        assert results[0] == results[1]
    else:
        assert torch.equal(*results)
