"""Dense tensors within others."""

import torch

from subclass_aot import TwoTensor
from subclass_aot.cost.profiling.parts import dense_parts, tensors_in


def test_wrappers_and_sparse_tensors_are_their_parts() -> None:
    a, b = torch.ones(2), torch.ones(2)
    assert [x is y for x, y in zip(dense_parts(TwoTensor(a, TwoTensor(a, b))), (a, a, b), strict=True)] == [True] * 3
    sparse = torch.sparse_coo_tensor([[0, 3]], [1.0, 2.0], (5,), check_invariants=True)
    assert [part.dtype for part in dense_parts(sparse)] == [torch.int64, torch.float32]
    assert not list(dense_parts(3))


def test_tensors_are_found_in_arguments() -> None:
    a, b = torch.ones(2), torch.ones(3)
    assert [len(x) for x in tensors_in((1, [a, (b,)], {"c": a}, None))] == [2, 3, 2]
