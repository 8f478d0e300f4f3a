"""What reductions on CUDA take while they run: the parts that blocks of threads have computed.

Source: `setReduceConfig` and `ReduceConfig` in ATen's `native/cuda/Reduce.cuh`. Where there are few results and many
elements for each, several blocks share one result, and a buffer in memory has what each of them found. Compared with
what an H100 allocated: equal to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.cost.devices import Device
from subclass_aot.meta import Operation

_aten: Any = torch.ops.aten

_MOST_THREADS = 512
_WARP = 32
_LEAST_VALUES, _MOST_VALUES = 16, 256
"""Elements that one thread reduces before others help."""
_LONGEST = 2**31 - 1
"""Elements that a kernel reduces at a time."""


def workspace_of_reduction(operation: Operation, device: Device) -> int | None:
    """Returns the bytes that a reduction takes while it runs; None for all that is no reduction.

    Args:
        operation: Any operator that has run, on a tensor on CUDA.
        device: The device.
    """
    size_of = _REDUCTIONS.get(operation.func.overloadpacket)
    if size_of is None:
        return None
    names = [each.name for each in _torch.operators.schema_of(operation.func).arguments]
    given = {**dict(zip(names, operation.args, strict=False)), **operation.kwargs}
    x = given.get("self")
    if not isinstance(x, torch.Tensor) or not x.numel():
        return 0
    results = operation.result
    result = results if isinstance(results, torch.Tensor) else results[0]
    dtype = x.dtype
    converted = x.nbytes + result.nbytes if operation.func.overloadpacket is _aten.logsumexp else 0
    if operation.func.overloadpacket in _SUMS and dtype is not result.dtype and dtype not in _SHORT:
        dtype, converted = result.dtype, x.numel() * result.dtype.itemsize
    dims = given.get("dim")
    dims = range(x.dim()) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    reduced = {dim % max(x.dim(), 1) for dim in dims}
    rows = [
        (int(n), 0 if i in reduced else 1, int(s)) for i, (n, s) in enumerate(zip(x.shape, x.stride(), strict=True))
    ]
    offset = int(x.storage_offset()) if not converted else 0
    buffer = max((_buffer(part, dtype, size_of(dtype), offset, device) for part in _parts(rows)), default=0)
    return buffer + converted


def _parts(dims: Sequence[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Returns the dims of the parts of which each has few enough elements."""
    dims = list(dims)
    while math.prod(size for size, *_ in dims) > _LONGEST:
        i = max(range(len(dims)), key=lambda i: (dims[i][0] - 1) * dims[i][2])
        dims[i] = (-(-dims[i][0] // 2), *dims[i][1:])
    return [dims]


def _buffer(dims: list[tuple[int, int, int]], dtype: torch.dtype, size: int, offset: int, device: Device) -> int:
    """Returns the bytes of the buffer and of its semaphores.

    Args:
        dims: Of each dim the size, whether it is kept, and the stride.
        dtype: Of the elements.
        size: The bytes of what is known of the elements so far.
        offset: Where they begin in their storage.
        device: The device.
    """
    shape, strides, reduced = _as_iterated(dims)
    outputs = math.prod(shape[reduced:])
    inputs = math.prod(shape[:reduced])
    along = reduced == len(shape) or strides[0] < strides[reduced]
    columns, rows = (inputs, outputs) if along else (outputs, inputs)
    at_a_time, is_packed = 1, bool(strides) and strides[0 if along else reduced] == 1
    if is_packed and along and columns > 128 and len(shape) == 1:
        columns //= 8 if dtype.itemsize == 2 else 4
    elif is_packed and not along:
        at_a_time = _together(shape, strides, reduced, offset)
        columns //= at_a_time
    most = (256 if dtype is torch.complex128 else _MOST_THREADS) // at_a_time
    across, down = (most if n >= most else 1 << n.bit_length() - 1 for n in (max(columns, 1), max(rows, 1)))
    width = min(across, _WARP)
    height = min(down, most // width)
    width = min(across, most // height)
    step_in, step_out = (width, 1) if along else (1, width)
    values = -(-inputs // step_in)
    if values < min(height * 16, _MOST_VALUES):
        return 0
    step_in *= height
    values = -(-inputs // step_in)
    grid = -(-(outputs // at_a_time) // step_out)
    wanted = device.multiprocessors * (_threads(device) // (width * height))
    if values < _MOST_VALUES or grid > wanted:
        return 0
    blocks = max(min(-(-wanted // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    if blocks <= 1:
        return 0
    buffer = size * outputs * blocks * (1 if along else width * at_a_time)
    return sum(-(-n // device.rounding) * device.rounding for n in (buffer, 4 * grid))


def _as_iterated(dims: list[tuple[int, int, int]]) -> tuple[list[int], list[int], int]:
    """Returns sizes and strides as a kernel goes through them, reduced dims first, and how many of these there are.

    Dims that lie one after the other are one.
    """
    parts: list[list[list[int]]] = [[], []]
    for kept in (0, 1):
        ordered = sorted(((stride, size) for size, is_kept, stride in dims if is_kept == kept and size != 1))
        for stride, size in ordered:
            if parts[kept] and parts[kept][-1][0] * parts[kept][-1][1] == stride:
                parts[kept][-1][0] *= size
            else:
                parts[kept].append([size, stride])
    both = parts[0] + parts[1]
    reduced = len(parts[0])
    if not reduced:  # a dim of one element is reduced
        both, reduced = [[1, 0], *both], 1
    return [size for size, _ in both], [stride for _, stride in both], reduced


def _together(shape: list[int], strides: list[int], reduced: int, offset: int) -> int:
    """Returns how many results a thread has: as many as divide all that says where they lie."""
    many = 4
    for n in (offset, shape[reduced], *strides[:reduced], *strides[reduced + 1 :]):
        while n % many:
            many //= 2
    return many


def _threads(device: Device) -> int:
    """Returns how many threads a multiprocessor has at the most."""
    capability = device.capability or (9, 0)
    if capability == (7, 5):
        return 1024
    return 1536 if capability in ((8, 6), (8, 7), (8, 9)) or capability[0] == 12 else 2048


def _of_sum(dtype: torch.dtype) -> int:
    return 4 if dtype in _SHORT else dtype.itemsize


def _of_pair(dtype: torch.dtype) -> int:
    return 16


def _of_moments(dtype: torch.dtype) -> int:
    return 32 if dtype is torch.float64 else 16


_SHORT = (torch.float16, torch.bfloat16)
_SUMS = frozenset({_aten.sum, _aten.mean, _aten.prod, _aten.nansum})
_REDUCTIONS: dict[Any, Any] = {
    **{getattr(_aten, name): _of_sum for name in ("sum", "mean", "prod", "nansum", "linalg_vector_norm", "logsumexp")},
    **{getattr(_aten, name): (lambda dtype: dtype.itemsize) for name in ("amax", "amin")},
    **{getattr(_aten, name): (lambda dtype: 1) for name in ("any", "all")},
    **{getattr(_aten, name): _of_pair for name in ("argmax", "argmin", "max", "min")},
    **{getattr(_aten, name): _of_moments for name in ("var", "std", "var_mean", "std_mean")},
}
"""By operator, how many bytes stand for what is known of elements of a dtype."""
