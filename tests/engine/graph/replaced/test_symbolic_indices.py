"""Tensors that are indexed by symbols: one compilation serves all sizes, and the results are those of eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile

READS: dict[str, Any] = {
    "last column": lambda x: x[:, x.shape[1] - 1],
    "last row": lambda x: x[x.shape[0] - 1],
    "half": lambda x: x[:, x.shape[1] // 2],
    "negative": lambda x: x[:, -(x.shape[1] // 2)],
    "one element": lambda x: x[x.shape[0] - 1, x.shape[1] - 1],
    "behind an ellipsis": lambda x: x[..., x.shape[-1] - 2],
    "before an ellipsis": lambda x: x[x.shape[0] - 2, ...],
    "with a new dim": lambda x: x[None, :, x.shape[1] - 1],
    "with a new dim behind": lambda x: x[x.shape[0] - 1, :, None],
    "with a number": lambda x: x[0, x.shape[1] - 1],
    "with a slice": lambda x: x[1:, x.shape[1] - 1],
    "with a symbolic slice": lambda x: x[: x.shape[0] // 2, x.shape[1] - 1],
    "of three dims": lambda x: x.view(1, *x.shape)[:, x.shape[0] - 1, x.shape[1] - 1],
    "of several": lambda x: x.expand(2, *x.shape)[1, ..., x.shape[1] - 1],
    "around an ellipsis": lambda x: x.expand(2, 3, *x.shape)[1, ..., None, x.shape[1] - 1],
    "in a loop": lambda x: sum(x[:, x.shape[1] - i - 1] * i for i in range(3)),
    "with a tensor": lambda x: x[torch.tensor([0, 1]), x.shape[1] - 1],
    "with a list": lambda x: x[[1, 0], x.shape[1] - 1],
    "of a wrapper": lambda x: TwoTensor(x, x + 1)[:, x.shape[1] - 1].b,
}
WRITES: dict[str, Any] = {
    "a number": lambda y, x: y.__setitem__((slice(None), x.shape[1] - 1), 3.0),
    "a tensor": lambda y, x: y.__setitem__((slice(None), x.shape[1] - 1), x[:, 0]),
    "broadcast": lambda y, x: y.__setitem__(x.shape[0] - 1, x[:1].sum(0)),
    "one element": lambda y, x: y.__setitem__((x.shape[0] - 1, x.shape[1] - 1), x.sum()),
    "added": lambda y, x: y[:, x.shape[1] - 1].add_(x[:, 0]),
}


@pytest.mark.every_case
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_read(read: Any) -> None:
    compiled = aot_compile(read)
    for rows, columns in ((4, 5), (5, 6), (6, 7), (7, 9)):
        x, y = (torch.arange(float(rows * columns)).view(rows, columns).requires_grad_() for _ in range(2))
        ours, theirs = compiled(x), read(y)
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
        assert ours.requires_grad == theirs.requires_grad
        if theirs.requires_grad:
            ours.square().sum().backward()
            theirs.square().sum().backward()
            assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)
    if read not in (READS["with a tensor"], READS["with a list"]):
        assert len(compiled.recompiles) == 1


@pytest.mark.every_case
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_written(write: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        write(y, x)
        return y

    compiled = aot_compile(program)
    for rows, columns in ((4, 5), (5, 6), (6, 7), (7, 9)):
        x, y = (torch.arange(float(rows * columns)).view(rows, columns).requires_grad_() for _ in range(2))
        ours, theirs = compiled(x), program(y)
        ours.square().sum().backward()
        theirs.square().sum().backward()
        assert torch.equal(ours, theirs)
        assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)
    assert len(compiled.recompiles) == 1


def test_torch_says_what_is_wrong() -> None:
    x = torch.ones(3, 3)
    for index in (lambda n: (0, 0, n), lambda n: (..., n), lambda n: (n + 1,)):
        with pytest.raises(IndexError):
            aot_compile(lambda x, index=index: x[index(x.shape[0])], dynamic=True)(x)
