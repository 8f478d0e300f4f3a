"""Products of codes with codes, in C++, are exact."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from subclass_aot.base import hooks
from subclass_aot.base._torch.quantized import int_mm, own_int_mm
from tests.native.places import run_natively


@pytest.fixture(autouse=True)
def products(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built, "products")
    if hooks.products is None:
        pytest.skip("this processor has no such kernels")


def codes_of(*size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    return torch.randint(-128, 128, size, generator=generator, dtype=torch.int8)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 17, 40])
@pytest.mark.parametrize("outputs", [2, 3, 4, 5, 64, 130])
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 96, 1024, 1040, 2055])
def test_exact(rows: int, outputs: int, columns: int) -> None:
    x, codes = codes_of(rows, columns), codes_of(outputs, columns)
    found = own_int_mm(x, codes.t())
    assert found.dtype is torch.int32 and torch.equal(found, (x.long() @ codes.long().t()).int())


def test_the_largest_sums() -> None:
    most = torch.full((3, 8192), -128, dtype=torch.int8)
    assert own_int_mm(most, most.t()).eq(8192 * 128**2).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads: int) -> None:
    x, codes, before = codes_of(20, 1024), codes_of(300, 1024), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(own_int_mm(x, codes.t()), (x.long() @ codes.long().t()).int())
    finally:
        torch.set_num_threads(before)


def test_what_it_does_not_serve_is_torchs() -> None:
    x, codes = codes_of(8, 64), codes_of(64, 32)
    assert torch.equal(own_int_mm(x, codes), int_mm(x, codes))
    assert torch.equal(own_int_mm(codes_of(64, 8).t(), codes), int_mm(codes_of(64, 8).t(), codes))
    for wrong in ((x, codes_of(32, 32)), (x.int(), codes), (x[0], codes)):
        with pytest.raises((RuntimeError, IndexError)):
            own_int_mm(*wrong)
