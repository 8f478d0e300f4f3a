"""A trace without symbols enters nothing of the subject that has numbers of Python be symbols."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import torch
import subclass_aot as sa

def program(x, n):
    return x * n

compiled = sa.aot_compile(program)
compiled(torch.ones(3, requires_grad=True), 2).sum().backward()
subjects = {name.split(".")[2] for name in sys.modules if name.startswith("subclass_aot.subjects.")}
assert subjects == {"recurrent"}, subjects  # whose operators are in files that torch loads
assert compiled(torch.ones(4), 3).tolist() == [3.0] * 4  # with symbols
assert "subclass_aot.subjects.numbers.around" in sys.modules
assert "subclass_aot.subjects.jagged" not in sys.modules
"""


def test_subjects_are_imported_where_a_program_needs_one() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
