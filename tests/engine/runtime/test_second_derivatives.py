"""A function that was compiled without second derivatives has nothing of them."""

from __future__ import annotations

import subprocess
import sys

from subclass_aot.engine.runtime import second_derivatives
from subclass_aot.subjects.second_derivatives import DoubleBackward

PROGRAM = """
import sys
import torch
import subclass_aot as sa

x = torch.ones(3, requires_grad=True)
sa.aot_compile(torch.sin)(x).sum().backward()
assert "subclass_aot.subjects.second_derivatives" not in sys.modules
(gradient,) = torch.autograd.grad(sa.aot_compile(torch.sin, double_backward=True)(x).sum(), x, create_graph=True)
(second,) = torch.autograd.grad(gradient.sum(), x)
assert torch.allclose(second, -x.sin()) and "subclass_aot.subjects.second_derivatives" in sys.modules
"""


def test_it_is_imported_where_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_the_place_of_the_engine_is_filled() -> None:
    assert second_derivatives.again._function is DoubleBackward
