"""Rows of quantized weights by their numbers are those of the dense weight, and no others are made dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode

import subclass_aot as sa

CLASSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "Int8Weight": sa.Int8Weight.from_float,
    "with a zero point": lambda w: sa.Int8Weight(
        torch.randint(-9, 9, w.shape, dtype=torch.int8), torch.rand(*w.shape[:-1], 1), torch.ones(*w.shape[:-1], 1)
    ),
    "of one scale": lambda w: sa.Int8Weight(
        torch.randint(-9, 9, w.shape, dtype=torch.int8), torch.rand((1,) * w.dim())
    ),
    "Int8DynamicWeight": sa.tensors.Int8DynamicWeight.from_float,
    "Float8Weight": sa.tensors.Float8Weight.from_float,
    "Int4Weight": lambda w: sa.tensors.Int4Weight.from_float(w, 4),
    "NF4Weight": lambda w: sa.tensors.NF4Weight.from_float(w, 4),
}
READS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "an embedding": lambda w, i: F.embedding(i, w),
    "with padding": lambda w, i: F.embedding(i, w, padding_idx=1),
    "selected": lambda w, i: w.index_select(0, i.flatten()),
    "from the last dim": lambda w, i: w.index_select(-w.dim(), i.flatten()),
    "indexed": lambda w, i: w[i],
    "from the end": lambda w, i: w[-1 - i],
    "of the transposed one": lambda w, i: w.mT[i % 8] if w.dim() == 2 else w[i],
    "none": lambda w, i: w[i[:0]],
}
OTHERS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "columns": lambda w, i: w.index_select(1, i.flatten() % 4),
    "by a mask": lambda w, i: w[torch.arange(w.shape[0]) > 3],
    "elements": lambda w, i: w[i, i % 4],
}


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("read", READS | OTHERS)
@pytest.mark.parametrize("name", CLASSES)
def test_they_are_those_of_the_dense_weight(name: str, read: str, dims: int) -> None:
    weight = CLASSES[name](torch.randn(12, *(5,) * (dims - 2), 8))
    indices, program = torch.tensor([[3, 1, 3], [0, 11, 7]]), (READS | OTHERS)[read]
    if read in ("an embedding", "with padding") and dims == 3:
        return
    expected = program(weight.to_plain(), indices)
    for run in (program, sa.aot_compile(program)):
        found: Any = run(weight, indices)
        torch.testing.assert_close(found.to_plain() if hasattr(found, "to_plain") else found, expected)


class Largest(TorchDispatchMode):
    """Notes the elements of the largest float that an operator makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if type(found) is torch.Tensor and found.dtype == torch.float32 and "view" not in str(func):
            self.elements = max(self.elements, found.numel())
        return found


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"of one scale"}))
def test_no_others_are_made_dense(name: str) -> None:
    weight = CLASSES[name](torch.randn(1000, 8))
    with Largest() as largest:
        F.embedding(torch.tensor([3, 1]), weight)
    assert 0 < largest.elements <= 1000  # scales at the most


def test_a_model_learns_through_them() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(12, 8), torch.nn.Linear(8, 2))
    reference = torch.nn.Sequential(torch.nn.Embedding(12, 8), torch.nn.Linear(8, 2))
    sa.quantize_(model, sa.Int8Weight, lambda name, layer: name == "0")
    reference.load_state_dict(sa.files.dense_state_dict(model))
    words = torch.tensor([3, 4])
    for each in (sa.aot_compile(model), reference):
        each(words).sum().backward()
    assert model[1].weight.grad is not None and reference[1].weight.grad is not None  # type: ignore[union-attr]
    torch.testing.assert_close(model[1].weight.grad, reference[1].weight.grad)
