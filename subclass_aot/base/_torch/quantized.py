"""Torch's own products with quantized weights. They have no public names; torchao and inductor call these.

What a caller has to keep to is checked here: some kernels read beyond their arguments where sizes do not fit.
When they go: return False from `takes_int8` and 0 from `_tile`, and products are those with dense weights again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base._torch.dispatch import disable_current_modes
from subclass_aot.base._torch.wrappers import is_traceable_wrapper_subclass

CAPABILITY = torch.backends.cpu.get_cpu_capability()
_HAS_KERNELS = CAPABILITY in ("AVX2", "AVX512")
"""Elsewhere the kernels are there, too, but are plain loops, or nobody tried them."""

INT4_GROUPS = (32, 64, 128, 256)
"""The lengths of groups that the product with weights in four bits takes."""

_MULTIPLE = 32
"""By this, kernels cut rows; with others, `_weight_int8pack_mm` reads memory that is not its own."""

_aten = torch.ops.aten
int8_mm = _aten._weight_int8pack_mm.default
"""`x[rows, N] @ (codes[M, N] * scale[M, None]).t()`, of codes and scales that are contiguous."""
_library = torch.library.Library("subclass_aot", "FRAGMENT")
_library.define("int8_mm(Tensor x, Tensor codes, Tensor scale) -> Tensor")
_library.impl("int8_mm", int8_mm, "CompositeExplicitAutograd")
torch.library.register_fake("subclass_aot::int8_mm", int8_mm, lib=_library)
own_int8_mm: Any = torch.ops.subclass_aot.int8_mm.default
"""The same, for which the accelerator has a kernel for CPUs: see `subclass_aot.tensors.products`."""
_library.define("int4_dense(Tensor packed, Tensor scales) -> Tensor")
_library.define("nf4_dense(Tensor packed, Tensor codes, Tensor step, Tensor center, float[] levels) -> Tensor")
_library.define("weight_mm(Tensor x, Tensor[] fields, str kind, float[] numbers) -> Tensor")
int4_dense: Any = torch.ops.subclass_aot.int4_dense.default
"""What `Int4Tiles.transposed` computes, in one pass over memory: see `subclass_aot.tensors.products`."""
nf4_dense: Any = torch.ops.subclass_aot.nf4_dense.default
"""What `NF4Weight.to_plain` computes, likewise."""
weight_mm: Any = torch.ops.subclass_aot.weight_mm.default
"""`x[rows, N] @ weight[M, N].t()`, of the fields of a weight and the name of its class: see `tensors/products.py`."""
int4_mm = _aten._weight_int4pack_mm_for_cpu.default
"""The same of codes of four bits, see `_tile`: of `x`, the packed codes `[M, N / 2]`, the length of a group, and
for each group the scale, and what the code 8 stands for: `[N / group, M, 2]`."""
int_mm = _aten._int_mm.default
"""See `int_product`."""
_library.define("int_mm(Tensor x, Tensor codes) -> Tensor")
_library.impl("int_mm", int_mm, "CompositeExplicitAutograd")
torch.library.register_fake("subclass_aot::int_mm", int_mm, lib=_library)
own_int_mm: Any = torch.ops.subclass_aot.int_mm.default
"""The same, for which the accelerator has a kernel where processors have no instruction for such sums."""


def written_out(op: Any, function: Callable[..., torch.Tensor]) -> None:
    """Has an operator of this library be `function`, in operators of torch, on all devices without a kernel for it."""
    name = op.name()
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(name, function, lib=_library)


DENSE_IS_FAST: dict[torch.dtype, bool] = {
    torch.float32: False,
    torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
}
"""Whether this CPU has a product of dense tensors of a dtype that is faster than kernels for codes, of many rows. Those
compute in float32: 4 times as fast as in bfloat16 on a processor with AVX2."""


FEW = 4
"""As many rows are a product whose time goes into reading the codes, where a dense one is fast."""


def has_few_rows(x: torch.Tensor, most: int) -> bool:
    """Returns whether `x` has at most so many rows: of symbolic sizes a guard, but in an export, which takes all.

    Where dense products are slow, any number is few.
    """
    if not DENSE_IS_FAST.get(x.dtype, True) and x.device.type == "cpu":
        return True
    rows: Any = x.shape[0]
    return not (isinstance(rows, torch.SymInt) and torch.compiler.is_exporting()) and rows <= most


def takes_int8(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> bool:
    """Returns whether the product of `x` and a weight in eight bits has a fast kernel.

    The kernel wants a scale for each row of codes; one for all is expanded by the caller.
    """
    if not _HAS_KERNELS or not _takes(x, codes, scale) or codes.dtype is not torch.int8:
        return False
    return codes.shape[1] % _MULTIPLE == 0 and scale.numel() in (1, codes.shape[0])


def takes_int4(x: torch.Tensor, tiles: torch.Tensor, scales: torch.Tensor) -> bool:
    """Returns whether the product of `x` and a weight in four bits, in tiles, has a fast kernel."""
    if not _takes(x, tiles, scales) or 2 * tiles.shape[2] != TILE or tiles.dtype is not torch.uint8:
        return False
    columns, (groups, rows, pair) = tiles.shape[1], scales.shape
    if rows != TILE * tiles.shape[0] or pair != 2 or not groups or columns % groups:
        return False
    return columns // groups in INT4_GROUPS and _tiles_follow()


def takes_two_int8(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> bool:
    """Returns whether the product of `x`, rounded to eight bits, and of codes `[N, K]` has a fast and exact kernel."""
    if scale.dtype is not x.dtype or any(map(is_traceable_wrapper_subclass, (x, codes, scale))) or _is_symbolic(codes):
        return False
    if codes.dtype is not torch.int8 or codes.shape[0] < 2:  # of one, `_int_mm` gives what its memory held
        return False
    if x.device.type == "cuda":  # cuBLAS takes multiples of 8
        return codes.shape[0] % 8 == 0 and codes.shape[1] % 8 == 0
    return x.device.type == "cpu" and _sums_are_exact()


def takes_dense(codes: torch.Tensor, tile: int, *rest: object) -> bool:
    """Returns whether there may be a kernel that computes a dense weight of codes in four bits, `tile` at a time.

    Args:
        codes: The codes, two in a byte.
        tile: How many codes lie side by side, for one scale or in one row of a tile.
        *rest: What else the weight is computed of: tensors of the class of `codes`, and numbers.
    """
    if tile % 32:
        return False
    with_grad, is_matrix = torch.is_grad_enabled(), codes.dim() == 2
    for x in (codes, *rest):
        if not isinstance(x, torch.Tensor):
            continue
        if type(x) is not type(codes) or x.device.type != "cpu" or _is_symbolic(x) or not x.is_contiguous():
            return False
        if is_matrix and x.dim() == 2 and x.shape[0] != codes.shape[0]:  # there is one scale for each row
            return False
        if x.is_floating_point() and (x.dtype is not torch.bfloat16 or (with_grad and x.requires_grad)):
            return False
    return True


def takes_weight(x: torch.Tensor, fields: Sequence[torch.Tensor]) -> bool:
    """Returns whether there may be a kernel for the product of `x` and a weight that is made of such fields."""
    if x.dim() != 2 or x.dtype not in DENSE_IS_FAST or any(map(_is_symbolic, fields)):
        return False
    with_grad = torch.is_grad_enabled()
    for field in (x, *fields):
        if type(field) is not type(x) or field.device.type != "cpu" or (with_grad and field.requires_grad):
            return False
        if field.dtype in DENSE_IS_FAST and field.dtype is not x.dtype:
            return False
    rows, columns = fields[0].shape[0], x.shape[1]
    if not all(field.is_contiguous() and field.shape[0] == rows for field in fields):
        return False
    if columns % _MULTIPLE or not columns:
        return False
    if fields[1].dim() == 2 and columns // (fields[1].shape[1] or 1) % _MULTIPLE:  # codes of one scale
        return False
    return has_few_rows(x, FEW)


@functools.cache
def _sums_are_exact() -> bool:
    """Returns whether no step of a product saturates, as sums of two do on processors that add them up in int16."""
    with disable_current_modes():
        most = torch.full((16, 64), 127, dtype=torch.int8, device="cpu")
        return bool((int_mm(most, most.t()) == 64 * 127 * 127).all())


def _takes(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> bool:
    if x.dtype is not torch.bfloat16 or x.device.type != "cpu" or scale.dtype is not x.dtype:
        return False
    if any(map(is_traceable_wrapper_subclass, (x, codes, scale))) or _is_symbolic(codes):
        return False
    return codes.is_contiguous() and scale.is_contiguous()


def _is_symbolic(codes: torch.Tensor) -> bool:
    """Returns whether codes have symbolic sizes, of which each condition of a kernel would be a guard."""
    sizes: tuple[Any, ...] = codes.shape
    return torch.SymInt in map(type, sizes)


def tile_for(weight: torch.Tensor, group: int) -> int:
    """Returns the rows of a tile of codes for the product with such a weight; 0 where there is no fast one."""
    fits = TILE and weight.shape[0] % TILE == 0 and group in INT4_GROUPS
    fits = fits and weight.dtype is torch.bfloat16 and weight.device.type == "cpu"
    return TILE if fits and _tiles_follow() else 0


def _tile() -> int:
    """Returns how many rows a tile of codes has on this machine; 0 where the layout is none of those that are known."""
    tile = {"AVX512": 64, "AVX2": 32}.get(CAPABILITY, 0)
    return tile if tile and _are_packed(1, tile) else 0


def _are_packed(count: int, tile: int) -> bool:
    """Returns whether so many tiles are packed as they are read here.

    The layout has no name and no version, so values are compared: tiles follow each other, and within one, a byte has
    the code of row `i` in its low bits, and that of row `i + tile / 2` in the high ones.
    """
    codes = torch.arange(count * tile * 32, dtype=torch.int32, device="cpu").remainder_(13).view(count * tile, 32)
    expected = codes.view(count, 2, tile // 2, 32).to(torch.uint8)
    low, high = expected.transpose(2, 3).unbind(1)
    found = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
    return found.view(count, 32, tile // 2).equal(low | high << 4)


@functools.cache
def _tiles_follow() -> bool:
    """Returns whether several tiles are packed one after the other.

    Asked when the first product wants it, and not at import: of several, torch starts its pool of threads, which a
    process that forks afterwards does not have, and waits for.
    """
    with disable_current_modes():
        return _are_packed(2, TILE)


TILE = _tile()
"""Of this machine."""
