"""Fields of any sizes and dtypes: refused by name, or products are those with what the weight stands for.

A kernel that trusts one field for the size of another reads memory that is not its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot import WrapperTensor, aot_compile, tensors
from subclass_aot.base import _torch
from subclass_aot.errors import InnerTensorError

M, N = 64, 128
W = torch.randn(M, N, generator=torch.Generator().manual_seed(0)).bfloat16()
INT8 = tensors.Int8Weight.from_float(W)

WEIGHTS: dict[str, Any] = {
    "Float8Weight": tensors.Float8Weight.from_float(W),
    "Int4Tiles": tensors.Int4Tiles.from_float(W, 32),
    "Int4Weight": tensors.Int4Weight.from_float(W, 32),
    "Int8DynamicWeight": tensors.Int8DynamicWeight.from_float(W),
    "Int8Weight": INT8,
    "Int8Weight with a zero point": tensors.Int8Weight(INT8.codes, INT8.scale, torch.ones(M, 1).bfloat16()),
    "LoraWeight": tensors.LoraWeight.beside(W, 4),
    "LoraWeight of Int8Weight": tensors.LoraWeight.beside(INT8, 4),
    "NF4Weight": tensors.NF4Weight.from_float(W, 32),
    "Sparse24Weight": tensors.Sparse24Weight.from_float(W),
}
DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool,
]  # fmt: skip
RANKS = [(), (1,), (M,), (N,), (1, 1), (M, 1), (1, N), (M, N, 1), (1, M, N)]
ROWS = (1, 8, 16, 17)


def fields(weight: Any) -> dict[str, Any]:
    return {name: getattr(weight, name) for name in weight.__tensor_flatten__()[0]}


def leaves(weight: Any) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    for name, field in fields(weight).items():
        inner = leaves(field) if isinstance(field, WrapperTensor) else [((), field)]
        yield from (((name, *path), leaf) for path, leaf in inner)


def replaced(weight: Any, path: tuple[str, ...], leaf: torch.Tensor) -> Any:
    if not path:
        return leaf
    held = fields(weight)
    return type(weight)(**{**held, path[0]: replaced(held[path[0]], path[1:], leaf)})


def resized(field: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Values of a field, again and again, in another size."""
    count = torch.Size(size).numel()
    return field.flatten().repeat(count // field.numel() + 1)[:count].view(size)


def other_sizes(field: torch.Tensor) -> Iterator[tuple[int, ...]]:
    for dim, n in enumerate(field.shape):
        for size in sorted({0, 1, n - 1, n, n + 1, 2 * n}):
            yield (*field.shape[:dim], size, *field.shape[dim + 1 :])
    yield from RANKS


def check(weight: Any, run: Callable[..., Any] = F.linear) -> None:
    columns = weight.shape[-1] if weight.dim() else N
    for rows, dtype in itertools.product(ROWS, (torch.bfloat16, torch.float32)):
        x = torch.randn(rows, columns).to(dtype)
        try:
            got = run(x, weight)
        except Exception:  # noqa: BLE001 - whatever it is, no memory was read
            continue
        expected = (x @ weight.to_plain().t()).double()
        most = expected.abs().max().item() if expected.numel() else 1.0
        torch.testing.assert_close(got.double(), expected, rtol=0.05, atol=0.05 * most + 1e-6, equal_nan=True)


EACH = [
    pytest.param(name, path, id=f"{name}.{'.'.join(path)}") for name in WEIGHTS for path, _ in leaves(WEIGHTS[name])
]


@pytest.mark.parametrize(("name", "path"), EACH)
def test_sizes(name: str, path: tuple[str, ...]) -> None:
    weight, field = WEIGHTS[name], dict(leaves(WEIGHTS[name]))[path]
    for size in other_sizes(field):
        try:
            made = replaced(weight, path, resized(field, size))
        except InnerTensorError as error:
            assert "do not fit. Right: " in str(error) and f"{path[0]}[" in str(error) or len(path) > 1
            continue
        check(made)


@pytest.mark.parametrize(("name", "path"), EACH)
def test_dtypes(name: str, path: tuple[str, ...]) -> None:
    weight, field = WEIGHTS[name], dict(leaves(WEIGHTS[name]))[path]
    for dtype in DTYPES:
        check(replaced(weight, path, field.to(dtype)))


@pytest.mark.parametrize("name", WEIGHTS)
def test_products_with_other_rows_are_refused(name: str) -> None:
    for rows, columns in itertools.product(ROWS, (N - 1, N + 1, 2 * N, N // 2, 0)):
        with pytest.raises((RuntimeError, IndexError)):
            F.linear(torch.randn(rows, columns).bfloat16(), WEIGHTS[name])


@pytest.mark.parametrize("cls", [tensors.Int8Weight, tensors.Int8DynamicWeight])
@pytest.mark.parametrize("shape", [(1, 1), (1, N), (), (1,), (N,)])
@pytest.mark.parametrize("compiled", [False, True])
def test_one_scale_for_all_decodes(compiled: bool, shape: tuple[int, ...], cls: Any) -> None:
    run = aot_compile(F.linear, fw_compiler="eager") if compiled else F.linear
    weight = cls(INT8.codes, torch.full(shape, 0.01).bfloat16())
    for rows in ROWS:
        x = torch.randn(rows, N).bfloat16()
        torch.testing.assert_close(run(x, weight), x @ weight.to_plain().t(), rtol=0.05, atol=0.2)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_dynamic_products_of_few_columns(columns: int) -> None:
    """`_int_mm` of one column gives what its memory held."""
    weight = tensors.Int8DynamicWeight.from_float(torch.randn(7, columns).bfloat16())
    check(weight)


def test_a_file_with_a_group_too_many_is_refused() -> None:
    tile = _torch.quantized.TILE or 64
    packed = torch.zeros(1, 1088, tile // 2, dtype=torch.uint8)
    with pytest.raises(InnerTensorError, match=r"Int4Tiles: the sizes packed\[1, 1088, .*\], scales\[33, .*\] do not"):
        tensors.Int4Tiles(packed, torch.ones(33, tile, 2, dtype=torch.bfloat16))


@pytest.mark.parametrize("rows", ROWS)
def test_kernels_compare_what_was_resized_in_place(rows: int) -> None:
    """Nobody is asked when an inner tensor is given other sizes."""
    weight = tensors.Int4Tiles.from_float(torch.randn(_torch.quantized.TILE or 64, 1088).bfloat16(), 32)
    weight.scales.resize_(33, *weight.scales.shape[1:])
    with pytest.raises(RuntimeError):
        F.linear(torch.ones(rows, 1088).bfloat16(), weight)
    codes = tensors.Int8Weight.from_float(W.clone())
    codes.scale.resize_(M // 2, 1)
    with pytest.raises(RuntimeError):
        F.linear(torch.ones(rows, N).bfloat16(), codes)


def test_masks_have_the_size_of_their_content() -> None:
    with pytest.raises(InnerTensorError, match="content and mask of one size"):
        tensors.MaskedTensor(torch.ones(3, 4), torch.ones(3, 1, dtype=torch.bool))
