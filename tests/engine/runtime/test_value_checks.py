"""What the engine has of checks: a graph without any is compiled whole, and its subject is not imported."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import fx

from subclass_aot import aot_compile
from subclass_aot.engine.runtime.value_checks import is_alone, is_check, is_in_parts


def test_the_subject_comes_with_the_first_check() -> None:
    program = (
        "import sys, torch, subclass_aot as sa\n"
        "name = 'subclass_aot.subjects.value_reads'\n"
        "sa.aot_compile(lambda x: x.sin() * torch.rand(2), fw_compiler='eager')(torch.ones(2))\n"
        "assert name not in sys.modules\n"
        "assert sa.aot_compile(lambda x: x.sin() if x.sum() > 0 else x)(torch.ones(2)).shape == (2,)\n"
        "assert name in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nodes_that_no_compiler_gets() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.aten.sin.default, (x,))
    graph.output(x)
    module = fx.GraphModule({}, graph)
    assert not is_in_parts(module)
    loss = graph.call_function(torch.ops.aten._ctc_loss.default, (x,))
    assert is_alone(loss) and not is_check(loss) and is_in_parts(module)
    x.meta["is_check"] = True
    assert is_check(x)


def test_a_failing_check_counts_no_draw() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand(2)
        return x + drawn if x.sum() > 0 else x - drawn

    compiled = aot_compile(program)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2)):
        torch.manual_seed(1)
        expected = program(x), torch.rand(1)
        torch.manual_seed(1)
        torch.testing.assert_close((compiled(x), torch.rand(1)), expected)
