"""What is taken apart, and what is the same memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import MetaTensor, TwoTensor
from subclass_aot.errors import StateDictError
from subclass_aot.files.leaves import is_wrapper, memory_of, state_of


def test_wrappers_of_anybody() -> None:
    x = torch.ones(2)
    assert (
        is_wrapper(TwoTensor(x, x)) and is_wrapper(ForeignTwoTensor(x, x)) and is_wrapper(nn.Parameter(TwoTensor(x, x)))
    )
    for value in (x, nn.Parameter(x), 3, None, TwoTensor, MetaTensor(x), x.to_sparse()):
        assert not is_wrapper(value)
    assert not is_wrapper(torch.nested.nested_tensor([x], layout=torch.jagged))  # torch saves it itself


def test_the_same_memory() -> None:
    x = torch.arange(4.0).view(2, 2)
    for same in (x.detach(), x.view(2, 2), nn.Parameter(x), x.t().t()):
        assert memory_of(same) == memory_of(x)
    others = [x.t(), x[:1], x.view(4), x.view(torch.int32), x.clone(), TwoTensor(x, x), torch.empty(0), torch.empty(0)]
    complex_ = torch.ones(2, dtype=torch.complex64)
    meta = torch.empty(2, device="meta")
    others += [complex_, complex_.conj(), x[1:], meta, meta.detach()]
    assert len({memory_of(other) for other in [x, *others]}) == 1 + len(others)


def test_the_entries_of_a_module() -> None:
    module = nn.Linear(2, 2)
    assert list(state_of(module)) == list(state_of(module.state_dict())) == ["weight", "bias"]


def test_an_optimizer_has_numbers_for_names() -> None:
    state = torch.optim.SGD([torch.ones(1)]).state_dict()
    assert list(state_of(state)) == ["state", "param_groups"]
    with pytest.raises(
        StateDictError, match=r"has the key 0\. The state of an optimizer .*flatten_optimizer_state_dict"
    ):
        state_of({0: torch.ones(1)})  # type: ignore[dict-item]
