"""Where the library reaches into the interpreter: all places are in one list, and switches lose nothing but time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from subclass_aot.base import tricks
from subclass_aot.base.tricks import TRICKS

PACKAGE = Path(tricks.__file__).parents[1]
ROOT = PACKAGE.parent
SWITCHES = [trick.name for trick in TRICKS if trick.without]

REACHES = re.compile(
    r"\bdis\.get_instructions\(|gc\.freeze\(|get_referrers\(|sys\.set(trace|profile)\("
    r"|\.__class__ = |setattr\((cls|torch\b)|sys\.meta_path\.insert\("
)
"""What such places have in common; `getrefcount` and frames are read in others, too, and changed in none."""

_OF_OURS = {"declare.py", "outer.py"}  # they complete a class of ours, or of an author, when it is defined


def test_all_places_are_in_the_list() -> None:
    listed = {place for trick in TRICKS for place in trick.where}
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if REACHES.search(path.read_text()) and not {"testing", "native"}.intersection(path.parts)
    }
    assert {place for place in found if Path(place).name not in _OF_OURS} <= listed
    assert all((PACKAGE / place).exists() for place in listed)


def test_the_documentation_has_the_list() -> None:
    said = (ROOT / "docs" / "tricks.md").read_text()
    for trick in TRICKS:
        files = ", ".join(f"`{place}`" for place in trick.where)
        assert f"| {trick.name} | {files} | {trick.why} | {trick.without or 'no switch'} |" in said


def run(without: str, program: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), "SUBCLASS_AOT_WITHOUT": without}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


PROGRAM = """
import torch, subclass_aot as sa
from torch.testing._internal.two_tensor import TwoTensor

class Holds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.weight = [], torch.nn.Parameter(sa.TwoTensor(torch.ones(2), torch.ones(2)))
    def forward(self, x):
        self.seen.append(x * 2)
        return self.weight * x, TwoTensor(x, x) * x

model, twin = Holds(), Holds()
compiled = sa.aot_compile(model)
for _ in range(2):
    for f in (compiled, twin):
        x = torch.arange(2.0)
        a, b = f(x)
        a.sum().backward()
assert torch.equal(model.weight.grad.a, twin.weight.grad.a) and len(model.seen) == len(twin.seen) == 2
print(type(a).__name__, type(b).__name__, b.a.tolist(), sa.MetaTensor is not None)
"""


@pytest.mark.parametrize("without", ["", *SWITCHES, ",".join(SWITCHES)])
def test_results_are_the_same_without(without: str) -> None:
    done = run(without, PROGRAM)
    assert done.stdout == "TwoTensor TwoTensor [0.0, 1.0] True\n", done.stderr


def test_a_name_that_is_no_switch() -> None:
    assert "'SymInt' cannot be switched off; give some of bytecode" in run("SymInt", "import subclass_aot").stderr
