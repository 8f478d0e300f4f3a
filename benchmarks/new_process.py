"""The first call in a new process, with inductor and an empty cache: from a file, beside torch's own cache artifacts.

Each measurement is a process of its own: `python -m benchmarks.new_process SIDE FOLDER LAYERS`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import subclass_aot as sa
from benchmarks.demo.vit import ViT
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Comparison

FILE, ARTIFACTS, COLD = "a file", "torch.compile, cache artifacts", "torch.compile"
SIDES = {FILE: "file", ARTIFACTS: "artifacts", COLD: "cold"}
FIRST = Target.faster(1, "first step of an int8 ViT in a new process, a file against torch's cache artifacts")


def run(budget: Budget, layers: int = 12) -> Iterator[Result]:
    """Measures a step of training of a ViT with int8 weights, from after the imports on; seconds of the clock."""
    rounds = min(3, budget.fewest_rounds)
    with TemporaryDirectory() as name:
        folder = Path(name)
        _in_child("probe", folder, folder / "probed", layers)
        for what in ("write file", "write artifacts"):
            _in_child(what, folder, _cache(folder), layers)
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        for _ in range(rounds):
            for side, what in SIDES.items():
                times[side].append(1e6 * _in_child(what, folder, _cache(folder), layers))
    comparison = Comparison({side: tuple(measured) for side, measured in times.items()})
    targets = {ARTIFACTS: FIRST if layers == 12 else None, COLD: None}
    case = f"ViT, {layers} layers, int8 weights, inductor, forward + backward"
    yield Result("first call in a new process", case, comparison, FILE, targets)


def _cache(folder: Path) -> Path:
    """A cache of inductor that has what it finds out once on a machine, and nothing of the model."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return Path(shutil.copytree(folder / "probed", folder / "cache"))


def _in_child(what: str, folder: Path, cache: Path, layers: int) -> float:
    command = [sys.executable, "-m", "benchmarks.new_process", what, str(folder), str(layers)]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return float(ran.stdout.split()[-1])


def _step(function: Any, images: Tensor) -> None:
    function(images).sum().backward()


def main(what: str, folder: Path, layers: int) -> None:
    """Does what a side does, and prints the seconds that it took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ViT(image=32, patch=16, layers=layers, width=64, heads=4, hidden=128, classes=10)
    sa.quantize_(model, sa.Int8Weight)
    images = torch.randn(2, 3, 32, 32)
    start = time.perf_counter()
    match what:
        case "probe":  # vector instructions, and precompiled headers
            torch.compile(torch.sin)(images)
        case "write file":
            compiled = sa.aot_compile(model, fw_compiler="inductor")
            _step(compiled, images)
            compiled.save(folder / "model.sa")
        case "write artifacts":
            _step(torch.compile(model), images)
            saved = torch.compiler.save_cache_artifacts()
            assert saved is not None
            (folder / "artifacts").write_bytes(saved[0])
        case "file":
            _step(sa.load_compiled(folder / "model.sa", model, trust=True), images)
        case "artifacts":
            torch.compiler.load_cache_artifacts((folder / "artifacts").read_bytes())
            _step(torch.compile(model), images)
        case "cold":
            _step(torch.compile(model), images)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
