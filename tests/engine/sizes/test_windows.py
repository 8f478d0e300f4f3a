"""`as_strided` of what is permuted, with symbolic sizes: windows of attention over chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from subclass_aot import aot_compile


def chunks(x: Tensor) -> Tensor:
    """Windows that overlap by half, as Longformer has them."""
    heads = x.view(*x.shape[:2], 2, 4).transpose(0, 1).transpose(1, 2)
    rows = heads.reshape(-1, x.shape[0], 4)
    pairs = rows.view(rows.shape[0], rows.shape[1] // 4, 4, 4)
    size, stride = list(pairs.shape), list(pairs.stride())
    size[1], stride[1] = size[1] * 2 - 1, stride[1] // 2
    return pairs.as_strided(size, stride)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "chunks": lambda x: chunks(x).sum(-1),
    "chunks of a product": lambda x: chunks(x * 2) * 3,
    "a diagonal": lambda x: (y := x.transpose(0, 1)).as_strided((y.shape[0],), (y.stride(0),)) + 1,
    "halves": lambda x: (y := x.permute(1, 2, 0)).as_strided((y.shape[0], 4), (y.stride(0), 1)) * 2,
    "of a write": lambda x: chunks((x * 2).add_(1)) * 3,
}


@pytest.mark.parametrize("door", ["aot_compile", "torch.compile"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_inference_compiles_once(program: str, door: str, fresh_dynamo: None) -> None:
    count = [0]

    def compiler(graph_module: fx.GraphModule, examples: Any) -> Any:
        count[0] += 1
        return graph_module

    function = PROGRAMS[program]
    compiled: Any = (
        aot_compile(function, fw_compiler=compiler)
        if door == "aot_compile"
        else torch.compile(function, backend="subclass_aot", options={"fw_compiler": compiler})
    )
    for batch in (2, 3, 5, 7):
        x = torch.randn(8, batch, 8)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    assert count == [2]


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients(program: str) -> None:
    function = PROGRAMS[program]
    compiled = aot_compile(function, fw_compiler="eager")
    for batch in (2, 3, 5):
        x = torch.randn(8, batch, 8, requires_grad=True)
        own, theirs = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (compiled, function))
        torch.testing.assert_close(own, theirs)
