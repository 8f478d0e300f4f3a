"""Why a function is compiled again for another size: `recompiles` names the line that needed the size."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import aot_compile


def test_a_size_that_is_assumed() -> None:
    def program(x: torch.Tensor) -> Any:
        return sum(x[i] * i for i in range(x.shape[0]))

    compiled = aot_compile(program)
    for n in (4, 6, 8):
        compiled(torch.ones(n))
    assert "args[0]: Tensor float32[6] on cpu before, Tensor float32[8] on cpu now" in compiled.recompiles[1]
    line = program.__code__.co_firstlineno + 1
    assert f"(args[0].size(0) == 6 is assumed at {__file__}:{line})" in compiled.recompiles[1]


def test_what_is_assumed_is_said_before_another_size() -> None:
    compiled = aot_compile(lambda x: x * 2 if int(x.shape[0] * 0.5) == 1 else x * 3)
    for n in (2, 3, 4):
        compiled(torch.ones(n))
    assert compiled.recompiles[1].startswith("math.trunc((torch.sym_float(s0) * 0.5")
    assert compiled.recompiles[1].endswith("where s0 = 4")


def test_a_function_that_fails_with_symbols() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if hasattr(x.shape[0], "node"):
            raise ValueError("no number")
        return x * 2

    compiled = aot_compile(program)
    for n in (4, 6, 8):
        compiled(torch.ones(n))
    assert len(compiled.recompiles) == 2
    assert compiled.recompiles[1].endswith(
        "; its sizes stay numbers, since with symbols it fails: ValueError: no number"
    )


def test_what_cannot_be_done_with_symbols() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x * 2

    compiled = aot_compile(program)
    for n in (4, 6, 8):
        compiled(torch.ones(n, 3))
    assert len(compiled.recompiles) == 2
    assert "; its sizes stay numbers, since this cannot be done with symbols: " in compiled.recompiles[1]
    assert "x.t_()" in compiled.recompiles[1] or __file__ in compiled.recompiles[1]
