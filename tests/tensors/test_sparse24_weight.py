"""Weights in the pattern 2:4 against dense tensors with a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot import Sparse24Weight
from tests.tensors.checks import (
    COMPILERS,
    EACH_COMPILER,
    FLOATS,
    check_linear,
    check_saving,
    layer,
    rows,
    same,
    verdicts,
)


def sparse(seed: int = 0) -> Sparse24Weight:
    generator = torch.Generator().manual_seed(seed)
    return Sparse24Weight.from_float(torch.randn(8, 64, generator=generator))


PRUNED: dict[tuple[int, str], str] = {}


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: sparse(), PRUNED) == {(24, "new_zeros")}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", rows())
def test_the_two_largest_of_four_are_kept(kind: str, dtype: torch.dtype) -> None:
    dense = rows(dtype)[kind]
    weight = Sparse24Weight.from_float(dense)
    assert (weight.shape, weight.dtype, weight.kept.numel()) == (dense.shape, dtype, dense.numel() // 2)
    plain = weight.to_plain()
    kept = torch.zeros_like(dense, dtype=torch.bool).unflatten(1, (-1, 4)).scatter(2, weight.places.long(), True)
    assert kept.sum(2).eq(2).all()
    assert plain.equal(dense.where(kept.flatten(1), 0))
    groups = dense.unflatten(1, (-1, 4)).abs()
    assert (groups.where(kept, float("inf")).amin(2) >= groups.where(~kept, 0).amax(2)).all()
    same(weight.from_plain(plain), weight)


@pytest.mark.parametrize("shape", [(4, 6), (8,), (2, 2, 4)])
def test_refusals(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"rows of a weight of \(.*\) cannot be cut into groups of 4"):
        Sparse24Weight.from_float(torch.ones(shape))


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_linear(compiler: str) -> None:
    check_linear(sparse(), compiler, trained=True)


OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1),
    "AdamW(foreach=True)": lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
    "AdamW(fused=True)": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("compiler", ["eager", "aot_compile"])
def test_training_keeps_the_pattern(compiler: str, name: str) -> None:
    """As a dense weight that is pruned after each step: the gradient is that of all elements, and so are its means."""
    weight, dense = torch.nn.Parameter(sparse()), torch.nn.Parameter(sparse().to_plain())
    places, pattern = weight.places.clone(), dense.detach() != 0
    mine, theirs = OPTIMIZERS[name]([weight]), OPTIMIZERS[name]([dense])
    x = torch.randn(5, 64)
    run = COMPILERS[compiler](lambda x, w: F.linear(x, w).square().mean())
    for _ in range(4):
        mine.zero_grad()
        theirs.zero_grad()
        run(x, weight).backward()
        F.linear(x, dense).square().mean().backward()
        mine.step()
        theirs.step()
        with torch.no_grad():
            dense.mul_(pattern)
    assert weight.places.equal(places) and type(weight.data) is Sparse24Weight
    torch.testing.assert_close(weight.to_plain().detach(), dense.detach(), rtol=1e-4, atol=1e-5)
    assert not weight.to_plain().equal(sparse().to_plain())


def test_parts_are_loaded() -> None:
    new, pattern = torch.randn(8, 64), sparse().to_plain() != 0
    for dim, size in ((0, 4), (1, 32), (1, 2)):
        weight: Any = sparse()
        for start in range(0, weight.shape[dim], size):
            weight.narrow(dim, start, size).copy_(new.narrow(dim, start, size))
        assert weight.to_plain().equal(new.where(pattern, 0))
        assert weight.places.equal(sparse().places)


def test_saving(tmp_path: Path) -> None:
    check_saving(sparse(), sparse(1), tmp_path)


def test_a_dense_checkpoint_is_pruned() -> None:
    target, dense = layer(sparse()), torch.randn(8, 64)
    target.load_state_dict({"weight": dense, "bias": torch.zeros(8)})
    assert target.weight.data.to_plain().equal(dense.where(sparse().to_plain() != 0, 0))
