"""`python -m benchmarks.quantized_kernels --device cuda`: torch's products with quantized weights, alone, beside dense.

For each kernel, shape and number of rows: the time of the dense product over that of the kernel, and how far the result
is from the product with what the codes stand for. A kernel that a device has not is named with the reason.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

aten: Any = torch.ops.aten
SHAPES = ((1024, 1024), (256, 1024), (3584, 1024), (1024, 3584), (4096, 4096), (11008, 4096), (4096, 11008))
ROWS = (1, 8, 64, 512)
GROUP = 64
TOLERANCE = 0.02
"""Of the norm of the difference, as a part of that of the product: bfloat16, and rounded activations."""

Product = Callable[[], torch.Tensor]
Made = Callable[[torch.Tensor, torch.Tensor], tuple[Product, torch.Tensor]]
"""Of `x` and a dense weight: the product by the kernel, and the weight that the codes stand for."""


def int8(x: torch.Tensor, weight: torch.Tensor) -> tuple[Product, torch.Tensor]:
    """Codes of eight bits, a scale for each row."""
    codes, scale = eight_bits(weight)
    flat = scale.flatten().to(x.dtype)
    return lambda: aten._weight_int8pack_mm(x, codes, flat), codes.float() * flat[:, None].float()


def int8_float(x: torch.Tensor, weight: torch.Tensor) -> tuple[Product, torch.Tensor]:
    """The same, with codes in float: what `Int8Weight` does of many rows."""
    codes, scale = eight_bits(weight)
    flat = scale.flatten().to(x.dtype)
    return lambda: flat * (x @ codes.to(x.dtype).t()), codes.float() * flat[:, None].float()


def int4(x: torch.Tensor, weight: torch.Tensor) -> tuple[Product, torch.Tensor]:
    """Codes of four bits, scale and middle for each group."""
    codes, scale, middle = four_bits(weight)
    scales = torch.stack((scale, middle), -1).transpose(0, 1).contiguous().to(x.dtype)
    rounded = [part.t().float().repeat_interleave(GROUP, 1) for part in scales.unbind(-1)]
    stands_for = (codes.float() - 8) * rounded[0] + rounded[1]
    if x.device.type == "cpu":
        packed = aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        return lambda: aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, scales), stands_for
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    packed = aten._convert_weight_to_int4pack(pairs, 8)
    return lambda: aten._weight_int4pack_mm(x, packed, GROUP, scales), stands_for


def int8_both(x: torch.Tensor, weight: torch.Tensor) -> tuple[Product, torch.Tensor]:
    """Codes of eight bits, and rows of `x` that are rounded at each call. On CUDA there are more than 16 rows."""
    codes, scale = eight_bits(weight)
    column = scale.t().contiguous()
    missing = max(17 - len(x), 0) if x.device.type == "cuda" else 0

    def product() -> torch.Tensor:
        steps = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / 127
        rounded = (x / steps).round().to(torch.int8)
        if missing:
            rounded = torch.nn.functional.pad(rounded, (0, 0, 0, missing))
        return (aten._int_mm(rounded, codes.t())[: len(x)] * steps * column).to(x.dtype)

    return product, codes.float() * scale


def float8_both(x: torch.Tensor, weight: torch.Tensor) -> tuple[Product, torch.Tensor]:
    """The same in E4M3."""
    most = torch.finfo(torch.float8_e4m3fn).max
    scale = weight.abs().amax(1, keepdim=True).float() / most
    codes = (weight.float() / scale).clamp(-most, most).to(torch.float8_e4m3fn)
    column = scale.t().contiguous()

    def product() -> torch.Tensor:
        steps = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / most
        rounded = (x / steps).clamp(-most, most).to(torch.float8_e4m3fn)
        return aten._scaled_mm(  # type: ignore[no-any-return]
            rounded, codes.t(), scale_a=steps, scale_b=column, out_dtype=x.dtype, use_fast_accum=True
        )

    return product, codes.float() * scale


def sparse24(x: torch.Tensor, weight: torch.Tensor) -> tuple[Product, torch.Tensor]:
    """Two of four elements."""
    groups = weight.unflatten(1, (-1, 4))
    pruned = torch.zeros_like(groups).scatter(2, places := groups.abs().topk(2).indices, groups.gather(2, places))
    dense = pruned.flatten(1)
    held = torch.sparse.to_sparse_semi_structured(dense)
    return lambda: torch.nn.functional.linear(x, held), dense.float()


def eight_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes, and a scale for each row."""
    scale = weight.abs().amax(1, keepdim=True).float() / 127
    return (weight.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def four_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes in int32, and for each group the scale and what the code 8 stands for."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = (high - low) / 15
    zero = (-low / scale).round()
    codes = (groups / scale[..., None] + zero[..., None]).round().clamp(0, 15)
    return codes.flatten(1).to(torch.int32), scale, (8 - zero) * scale


KERNELS: dict[str, tuple[Made, float]] = {
    "_weight_int8pack_mm": (int8, TOLERANCE),
    "int8 codes in float": (int8_float, TOLERANCE),
    "_weight_int4pack_mm": (int4, TOLERANCE),
    "_int_mm, dynamic": (int8_both, TOLERANCE),
    "_scaled_mm, dynamic": (float8_both, 0.05),
    "2:4": (sparse24, TOLERANCE),
}


def milliseconds(function: Product, device: str) -> float:
    """The median of a few calls."""
    times = []
    for _ in range(9):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(20):
                function()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / 20)
        else:
            start = time.perf_counter()
            function()
            times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def measure(device: str, shapes: tuple[tuple[int, int], ...], counts: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Kernel, shape, rows, milliseconds of the dense product, of the kernel, and the error; or the reason."""
    torch.manual_seed(0)
    for shape in shapes:
        weight = torch.randn(shape, device=device).to(torch.bfloat16) / shape[1] ** 0.5
        for rows in counts:
            x = torch.randn(rows, shape[1], device=device).to(torch.bfloat16)
            dense = milliseconds(lambda x=x, weight=weight: x @ weight.t(), device)  # type: ignore[misc]
            for name, (make, tolerance) in KERNELS.items():
                try:
                    product, stands_for = make(x, weight)
                    expected = x.float() @ stands_for.t()
                    error = float((product().float() - expected).norm() / expected.norm())
                except Exception as reason:  # noqa: BLE001
                    yield name, shape, rows, dense, None, (str(reason).splitlines() or [""])[0], False
                    continue
                yield name, shape, rows, dense, milliseconds(product, device), error, not error < tolerance


def main(arguments: list[str]) -> int:
    """Prints the table; 1 where a kernel computes something else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized_kernels", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true", help="one small shape, to see that it runs")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    shapes, counts = (((256, 256),), (1, 32)) if asked.small else (SHAPES, ROWS)
    name = torch.cuda.get_device_name() if asked.device == "cuda" else torch.backends.cpu.get_cpu_capability()
    print(f"torch {torch.__version__}, {name}\n")
    print("| kernel | weight | rows | dense, ms | kernel, ms | times as fast | error |\n|---|---|---|---|---|---|---|")
    wrong, lacking = 0, {}
    with torch.inference_mode():
        for kernel, shape, rows, dense, mine, error, is_wrong in measure(asked.device, shapes, counts):
            if mine is None:
                lacking[kernel, error] = (shape, rows)
                continue
            wrong += is_wrong
            size = f"{shape[0]} x {shape[1]}"
            marked = f"{error:.1e}{' WRONG' if is_wrong else ''}"
            print(
                f"| {kernel} | {size} | {rows} | {dense:.4f} | {mine:.4f} | {dense / mine:.2f} | {marked} |", flush=True
            )
    for (kernel, error), (shape, rows) in lacking.items():
        print(f"\n{kernel} does not run, at last of {shape} and {rows} rows: {error}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
