"""Parts of the house run without what is above them: in a folder of their own, where nothing else is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import house

KIT = """
from pathlib import Path
import torch
import subclass_aot
assert Path(subclass_aot.__file__).parent == Path.cwd() / "subclass_aot"
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.wrapper import Outer, WrapperTensor

class Scaled(WrapperTensor, fallback="plain"):
    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self):
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self):
        return self.codes * self.scale

x = Scaled(torch.ones(2, 3, dtype=torch.int8), torch.rand(2, 1))
plan = FlattenPlan.of([x])
(again,) = plan.wrap(plan.unwrap([x]))
assert torch.equal(again.to_plain(), x.codes * x.scale)
assert torch.equal(x @ torch.ones(3), x.to_plain() @ torch.ones(3))
"""
META = """
from subclass_aot.meta import MetaTensor
w = MetaTensor(torch.ones(3, 4)).requires_grad_()
(MetaTensor(torch.ones(10, 3)) @ w).relu().sum().backward()
assert w.grad.shape == (3, 4)
"""
ENGINE = """
from subclass_aot.engine.compile import aot_compile
from subclass_aot.engine.compilers import BACKENDS, Backend

def compile(graph, inputs, is_backward):
    def run(args):
        given = [*args]
        args.clear()
        return graph(*given)
    return run

BACKENDS["eager"] = Backend(compile)

def program(x, w, states):
    states.append(w.sum())
    return (x.to_plain() @ w).relu().sum() + torch.rand(()) * 0

w, states = torch.ones(3, 4, requires_grad=True), []
compiled = aot_compile(program)
for _ in range(2):
    compiled(x, w, states).backward()
torch.testing.assert_close(w.grad, 2 * x.to_plain().sum(0)[:, None].expand(3, 4))
assert [float(s) for s in states] == [12.0, 12.0]
"""
PARTS = {"kit": (("base", "kit"), KIT), "meta": (("base", "kit", "meta"), KIT + META)}
PARTS["engine"] = (("base", "kit", "meta", "engine", "subjects"), KIT + META + ENGINE)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_alone(part: str, tmp_path: Path) -> None:
    layers, program = PARTS[part]
    package = tmp_path / house.NAME
    package.mkdir()
    (package / "__init__.py").touch()
    for room in (house.ROOT / house.NAME).iterdir():
        place = house.place_of(room.stem)
        if place is not None and place[1] in layers:
            if room.is_dir():
                shutil.copytree(room, package / room.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(room, package)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-W", "error::RuntimeWarning", "program.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
