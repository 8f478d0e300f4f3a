"""Operators of quantization-aware training, and of a few distributions, layouts by layouts, beside their kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import subclass_aot as sa
from tests.meta.rule_check import check

aten = torch.ops.aten


def layouts(*size: int) -> Iterator[torch.Tensor]:
    """Yields tensors of one size, permuted, expanded, and cut out of larger ones."""
    x = torch.rand(*size) + 0.5
    for order in itertools.permutations(range(len(size))):
        yield x.permute(order).contiguous().permute([order.index(i) for i in range(len(size))])
    yield x[:1].expand(*size)
    yield x[..., :1].expand(*size)
    yield (torch.rand([n + 2 for n in size]) + 0.5)[tuple(slice(1, n + 1) for n in size)]
    yield torch.rand([0, *size[1:]])


def _of_one(x: torch.Tensor) -> Iterator[tuple[Any, ...]]:
    one, zero = torch.ones(1), torch.zeros(1)
    each, zeros = torch.ones(x.shape[1]), torch.zeros(x.shape[1])
    yield aten.fake_quantize_per_tensor_affine_cachemask, x, 0.1, 0, -8, 7
    yield aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams, x, one, zero.int(), one.long(), -8, 7
    yield aten.fake_quantize_per_channel_affine_cachemask, x, each, zeros.int(), 1, -8, 7
    yield aten._fake_quantize_learnable_per_tensor_affine, x, one, zero, -8, 7
    yield aten._fake_quantize_learnable_per_channel_affine, x, each, zeros, 1, -8, 7
    yield aten._fake_quantize_learnable_per_tensor_affine_backward, x * 2, x, one, zero, -8, 7
    yield aten._fake_quantize_learnable_per_channel_affine_backward, x * 2, x, each, zeros, 1, -8, 7
    yield aten._masked_softmax, x, x > 1, 1
    yield aten._masked_softmax_backward, x, x, x > 1, 1
    yield aten._standard_gamma_grad, x, x + 1
    yield aten.binomial, x, x / 2
    yield aten._sample_dirichlet, x
    yield aten._dirichlet_grad, x, x, x
    if x.numel():
        yield aten.batch_norm_update_stats, x, zeros, each, 0.1


def test_results_are_those_of_the_kernels() -> None:
    for x in (*layouts(2, 4), *layouts(2, 3, 4), *layouts(2, 3, 4, 5)):
        for operator, *args in _of_one(x):
            check(operator.default, *args)


def test_halves_and_heads() -> None:
    for x in layouts(2, 4, 6):
        glu = torch.nn.functional.glu(x, 1)
        check(aten.glu_jvp.default, glu, x, x, 1)
        check(aten.glu_backward_jvp.default, x, glu, x, glu, x, 1)
    check(aten._transform_bias_rescale_qkv.default, torch.rand(2, 5, 96), torch.rand(96), 2)


class Learnt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.scale, self.zero = torch.nn.Parameter(torch.full((4,), 0.1)), torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = torch._fake_quantize_learnable_per_channel_affine(self.layer.weight, self.scale, self.zero, 0, -8, 7, 1.0)
        return torch.nn.functional.linear(x, w, self.layer.bias)


PROGRAMS: dict[str, Any] = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7) * 2,
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.ones(4), torch.zeros(4, dtype=torch.int32), 1, -8, 7
    ),
    "of tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.ones(1) * 0.1, torch.zeros(1, dtype=torch.int32), -8, 7
    ),
    "masked softmax": lambda x: torch._masked_softmax(x, x.detach() > 0.5, 1),
    "gamma": lambda x: torch.distributions.Gamma(x.abs() + 1, 1.0).rsample() * 2,
    "dirichlet": lambda x: torch.distributions.Dirichlet(x.abs() + 1).rsample() * 2,
    "binomial": lambda x: torch.binomial(torch.full_like(x, 5), x.detach().sigmoid()) + x,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch._dynamo", "ignore:The .grad attribute")  # of Dynamo
@pytest.mark.parametrize("door", ["aot_compile", "torch.compile"])
@pytest.mark.parametrize("name", [*PROGRAMS, "learnt"])
def test_programs_are_as_in_eager_mode(name: str, door: str) -> None:
    program: Any = PROGRAMS.get(name) or Learnt()
    torch._dynamo.reset()
    compiled = sa.aot_compile(program) if door == "aot_compile" else torch.compile(program, backend="subclass_aot")
    for rows in (3, 5, 6):
        x = torch.linspace(-2, 2, rows * 4).view(rows, 4).requires_grad_()
        found = []
        for run in (compiled, program):
            torch.manual_seed(rows)
            parameters = [x, *(program.parameters() if isinstance(program, Learnt) else ())]
            result = run(x)
            found.append([result, *torch.autograd.grad(result.square().sum(), parameters)])
        torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)
