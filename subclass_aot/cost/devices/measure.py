"""A device that is there, measured by three operators: a large product, a copy, and a small one."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from subclass_aot.base.put_back import PutBack
from subclass_aot.cost.devices.device import Device, device_of
from subclass_aot.errors import DeviceError

_NOT_HERE = """There is no {device} on this machine to measure.
  Instead: measure("cpu"), or on a machine with a GPU measure("cuda").write("mine.toml"), and name that file here."""

_ENOUGH = 0.02
"""Seconds that one measurement takes at least."""

_ROUNDS = 5
_COPIED = 1 << 28
"""Bytes of the tensor that is copied: more than caches have."""


def measure(device: str | torch.device = "cpu") -> Device:
    """Returns what a device of this machine can do, measured; that takes a few seconds.

    Three operators say it: a product of large matrices in each dtype, a copy of a large tensor, and a sum of two small
    ones. The fastest of five rounds counts. What is between devices is not measured, and taken from one that is known.
    On a CPU it holds for the number of threads that torch has now.

    Args:
        device: "cpu", "cuda" or "cuda:1".

    Raises:
        DeviceError: It is not there.
    """
    where = torch.device(device)
    is_cuda = where.type == "cuda"
    if where.type != "cpu" and not (
        is_cuda and torch.cuda.is_available() and (where.index or 0) < torch.cuda.device_count()
    ):
        raise DeviceError(_NOT_HERE.format(device=where))
    known = device_of("H100" if is_cuda else "cpu")
    dtypes = ["float32", *(["tf32"] if is_cuda else []), "bfloat16", "float16", "float64"]
    with torch.no_grad():
        flops = {name: found for name in dtypes if (found := _product(name, where)) is not None}
        large = torch.ones(2, _COPIED // 4, device=where)
        bandwidth = 2 * _COPIED / _seconds(partial(large[0].copy_, large[1]), where)
        del large
        small = torch.ones(8, device=where)
        launch = _seconds(partial(torch.add, small, small), where)
    properties = torch.cuda.get_device_properties(where) if is_cuda else None
    name = properties.name if properties is not None else f"{_processor()}, {torch.get_num_threads()} threads"
    return replace(
        known,
        name=f"{name}, measured",
        product=properties.name if properties is not None else "",
        capability=None if properties is None else (properties.major, properties.minor),
        multiprocessors=torch.get_num_threads() if properties is None else properties.multi_processor_count,
        memory=_memory() if properties is None else properties.total_memory,
        flops=flops,
        bandwidth=bandwidth,
        launch=launch,
        unseen=("link_bandwidth", "link_latency"),
        sources=(
            f"flops, bandwidth, launch: measured with torch {torch.__version__}: products, a copy, a small sum",
            f"link_bandwidth, link_latency: those of {known.name}",
        ),
    )


def _product(name: str, device: torch.device) -> float | None:
    """Returns operations in a second of a large product; None for a dtype that is not multiplied there."""
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    with _tf32(name == "tf32"):
        try:
            for size in (256, 512, 1024, 2048, 4096, 8192):  # until it takes as long as what is to be measured
                factor = torch.full((size, size), 0.01, dtype=dtype, device=device)
                seconds = _seconds(partial(torch.mm, factor, factor), device, rounds=1)
                if seconds > _ENOUGH / 4:
                    break
            return 2 * size**3 / min(seconds, _seconds(partial(torch.mm, factor, factor), device))
        except RuntimeError:  # "not implemented for"
            return None


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Runs the block with products of float32 rounded to tf32, or not."""
    products = torch.backends.cuda.matmul
    with PutBack(partial(setattr, products, "allow_tf32", products.allow_tf32)):
        products.allow_tf32 = allowed
        yield


def _seconds(run: Callable[[], object], device: torch.device, rounds: int = _ROUNDS) -> float:
    """Returns how long a run takes, the fastest of several rounds."""
    times, best = 1, float("inf")
    run()
    while True:
        took = _timed(run, times, device)
        if took >= _ENOUGH or times > 1 << 20:
            break
        times *= 2 if took > _ENOUGH / 8 else 8
    for _ in range(rounds):
        best = min(best, _timed(run, times, device) / times)
    return best


def _timed(run: Callable[[], object], times: int, device: torch.device) -> float:
    _finish(device)
    began = time.perf_counter()
    for _ in range(times):
        run()
    _finish(device)
    return time.perf_counter() - began


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):  # no Linux
        return platform.processor() or platform.machine()


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return device_of("cpu").memory
