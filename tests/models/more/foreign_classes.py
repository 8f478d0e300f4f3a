"""Tries the kit on classes of others: `python -m tests.models.more.foreign_classes` prints what the documentation has.

Names of classes choose some. Three are of `torchao` and two of `optimum-quanto`; both need none of their dependencies.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from subclass_aot.base import _torch
from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract import Report


def two_tensor() -> Any:
    cls = _torch.wrappers.foreign_two_tensor()
    return cls(torch.randn(4, 6), torch.randn(4, 6))


def jagged() -> Any:
    return torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)


def d_tensor() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    return distribute_tensor(torch.randn(4, 6), init_device_mesh("cpu", (1,)), [Shard(0)])


def int8_tensor() -> Any:
    from torchao.quantization import Int8WeightOnlyConfig

    return _quantized(Int8WeightOnlyConfig())


def float8_tensor() -> Any:
    from torchao.quantization import Float8WeightOnlyConfig

    return _quantized(Float8WeightOnlyConfig())


def nf4_tensor() -> Any:
    from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4

    return to_nf4(torch.randn(64, 128), 32, 2)


def q_bytes() -> Any:
    from optimum.quanto import AbsmaxOptimizer, qint8, quantize_weight

    weight = torch.randn(4, 6)
    return quantize_weight(weight, qint8, axis=0, scale=AbsmaxOptimizer()(weight, qint8, axis=0))


def q_bits() -> Any:
    from optimum.quanto import MaxOptimizer, qint4, quantize_weight

    weight = torch.randn(4, 128)
    scale, shift = MaxOptimizer()(weight, qint4, axis=0, group_size=128)
    return quantize_weight(weight, qint4, axis=0, scale=scale, shift=shift, group_size=128)


def _quantized(config: Any) -> Any:
    from torchao.quantization import quantize_

    layer = torch.nn.Linear(6, 4, bias=False)
    quantize_(layer, config)
    return layer.weight.detach()


CLASSES: dict[str, Callable[[], Any]] = {
    "TwoTensor": two_tensor,
    "DTensor": lambda: d_tensor(),  # not for two processes, which have a process group of their own
    "NestedTensor": jagged,
    "Int8Tensor": int8_tensor,
    "Float8Tensor": float8_tensor,
    "NF4Tensor": nf4_tensor,
    "WeightQBytesTensor": q_bytes,
    "WeightQBitsTensor": q_bits,
}


def row(name: str, report: Report, seconds: float) -> str:
    """What came of a class, as a row of the table."""
    counts = Counter(finding.verdict for finding in report.findings)
    owed = len([finding for finding in report.broken if finding.verdict == "raises"])
    numbers = [counts["kept"], counts["broken"], owed, counts["raises"] - owed, counts["does not apply"]]
    return f"| `{name}` | {' | '.join(map(str, numbers))} | {seconds:.0f} |"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def main(names: list[str]) -> None:
    """Prints the versions, the table, and what is broken of each class."""
    others = ", ".join(f"{package} {_version(package)}" for package in ("torchao", "optimum-quanto"))
    versions = f"torch {torch.__version__}, {others}, Python {platform.python_version()}"
    print(f"{datetime.date.today()}, {versions}\n")
    print("| class | kept | broken | raises, owed | raises, not offered | does not apply | seconds |")
    print("|---|---|---|---|---|---|---|")
    reports = {}
    for name in names or CLASSES:
        start = sum(os.times()[:4])
        reports[name] = check_subclass(CLASSES[name])
        print(row(name, reports[name], sum(os.times()[:4]) - start), flush=True)
    for name, report in reports.items():
        print(f"\n{name}")
        for finding in report.broken:
            print(f"  {finding.verdict}: {finding.clause.number} {finding.clause.name}: {finding.why}")


if __name__ == "__main__":
    from tests.models.more import foreign_classes  # by a name that other processes can import

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    foreign_classes.main(sys.argv[1:])
