"""`out=` is written where torch loses it in a trace."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.testing import check_compiled

X, Y = torch.tensor([[1.0, 2.0], [2.0, 4.0]]), torch.tensor([[1.0, 2.0], [0.0, 4.0]])
COUNT = torch.full((), -1)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matrix_rank": (lambda x, out: (torch.linalg.matrix_rank(x, out=out), out * 1), (X, COUNT)),
    "matrix_rank, of a type": (
        lambda x, out: (torch.linalg.matrix_rank(x, hermitian=True, out=out[1]), out)[1] * 1,
        (X, torch.zeros(3)),
    ),
    "matrix_rank, of another size": (
        lambda x, out: torch.linalg.matrix_rank(x.expand(4, 2, 2), atol=0.1, out=out),
        (X, torch.zeros(1, dtype=torch.int64)),
    ),
    "matrix_rank, computed": (lambda x: torch.linalg.matrix_rank(x, out=x.new_zeros((), dtype=torch.int64)), (X,)),
    "matrix_rank, by its operator": (
        lambda x, out: (torch.ops.aten.linalg_matrix_rank.out(x, 0.1, out=out), out * 1),
        (X, COUNT),
    ),
    "matrix_rank, without": (lambda x: torch.linalg.matrix_rank(x), (X,)),
    "chain_matmul of one": (lambda x, out: (torch.chain_matmul(x, out=out), out * 1), (X, torch.zeros(2, 2))),
    "chain_matmul of two": (lambda x, y, out: (torch.chain_matmul(x, y, out=out), out * 1), (X, Y, torch.zeros(2, 2))),
    "chain_matmul of three": (lambda x, y, out: torch.chain_matmul(x, y, x, out=out) + out, (X, Y, torch.zeros(0))),
    "chain_matmul, without": (lambda x, y: torch.chain_matmul(x, y, x), (X, Y)),
    "kron": (lambda x, y, out: (torch.kron(x, y, out=out), out * 1), (X, Y, torch.zeros(4, 4))),
    "kron, a part": (lambda x, y, out: (torch.kron(x, y, out=out[1]), out * 1), (X, Y, torch.zeros(3, 4, 4))),
    "kron, computed": (lambda x, y: torch.kron(x, y, out=x.new_zeros(3, 4, 4)[1]), (X, Y)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_out_is_written(name: str) -> None:
    program, given = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sizes that change, and of `chain_matmul` itself
        check_compiled(program, given, training=False, tries=0)
        check_compiled(program, given, training=False, tries=0, dynamic=True)


def test_a_type_that_no_count_fits_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="Expected result to be safely castable"):
        aot_compile(lambda x, out: torch.linalg.matrix_rank(x, out=out))(X, torch.zeros((), dtype=torch.bool))
