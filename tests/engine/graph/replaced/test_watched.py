"""Where a program registers hooks on tensors is noted while it is traced."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.base._torch.autograd import has_noted_hooks as is_watched
from subclass_aot.engine.graph import REPLACED
from subclass_aot.meta import Replaced


@pytest.mark.parametrize("register", [lambda x: x.register_hook(torch.neg), lambda x: x.retain_grad()])
def test_hooks_are_noted(register: Any) -> None:
    leaf = torch.ones(3, requires_grad=True)
    x = leaf * 2
    function: Any = x.grad_fn
    assert not is_watched(function)
    register(x)
    assert not is_watched(function)
    recorder: Any = None
    with Replaced(recorder, REPLACED):
        register(x)
        register(leaf)  # which has no gradient function
    del x
    assert is_watched(function)
