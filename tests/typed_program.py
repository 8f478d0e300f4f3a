"""A program of a user, which `mypy --strict` takes: each public name is used once, and results have their types."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import assert_type

import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.tensors import weights_of


class Scaled(sa.WrapperTensor):
    """A tensor times a number."""

    numbers: torch.Tensor
    by: float

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.numbers)

    def to_plain(self) -> torch.Tensor:
        return self.numbers * self.by


@Scaled.implements(torch.ops.aten.neg.default)
def _(x: Scaled) -> Scaled:
    return Scaled(x.numbers, -x.by)


@sa.aot_compile
def double(x: torch.Tensor, by: int = 2) -> torch.Tensor:
    return x * by


class Layer(nn.Module):
    @sa.aot_compile
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


def train(model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()


def main(folder: Path) -> None:
    x = torch.ones(2, 64)
    assert_type(double(x, by=3), torch.Tensor)
    assert_type(double(Scaled(x, 2.0)), torch.Tensor)
    assert_type(double.explain(), str)
    assert_type(double.recompiles, list[str])
    double.save(folder / "double.sa")
    print(sa.load_compiled(folder / "double.sa", trust=True)(x, by=3))

    model = sa.quantize_(nn.Sequential(nn.Linear(64, 64)), sa.Int8Weight)
    assert_type(model, nn.Sequential)
    assert_type(weights_of(model).nbytes, int)
    compiled = sa.aot_compile(model, fw_compiler="eager", dynamic=True)
    sa.mark_dynamic(x, 0)
    print(compiled(x), sa.tensors.Int4Weight.from_float(torch.ones(64, 64)))

    joint = sa.trace_joint(nn.Linear(64, 64), x)
    assert_type(joint, sa.Joint)
    assert_type(sa.compile_joint(joint), sa.CompiledJoint)
    assert_type([given.name for given in joint.inputs], list[str])

    with sa.meta("H100"):
        large = nn.Linear(10**5, 10**5)
    assert_type(sa.to_meta(model), nn.Sequential)
    report = sa.profile(train, large, torch.empty(8, 10**5), device="H100", memory="80GiB")
    assert_type(report, sa.profiling.Report)
    assert_type(report.peak, int)
    assert_type(report.seconds().seconds, float)
    with sa.profile(large) as block:
        large(torch.empty(8, 10**5, device="meta"))
    assert_type(block, sa.profiling.Report)

    sa.testing.check_compiled(lambda x: x * 2, (x,))
    sa.testing.check_subclass(lambda: Scaled(torch.ones(2), 2.0), quick=True)
    try:
        sa.compile_blocks(nn.Sequential(nn.Linear(2, 2)))
    except sa.SubclassAotError as error:
        print(error)


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
