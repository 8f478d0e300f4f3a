"""Views of another size, with symbolic sizes: what eager mode refuses is refused in its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile

_unsafe_view = torch.ops.aten._unsafe_view.default

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a window between": lambda x: x.unfold(-1, 2, 3).view(-1),
    "a window between, unsafe": lambda x: _unsafe_view(x.unfold(-1, 2, 3), (-1,)),
    "a one between": lambda x: x[..., ::2].unsqueeze(-2).view(-1),
    "ones between": lambda x: x[..., :-1].unsqueeze(-2).unsqueeze(-2).view(x.shape[0], -1),
    "a one between what fits": lambda x: x.unsqueeze(-2).view(-1),
    "ones between what fits": lambda x: x.unsqueeze(1).unsqueeze(3).view(x.shape[0] * x.shape[1], -1),
    "a one of the input": lambda x: x[:, :1].view(-1),
    "a transpose": lambda x: x.transpose(0, 1).view(-1),
    "a transpose, unsafe": lambda x: _unsafe_view(x.transpose(0, 1), (-1,)),
    "another transpose": lambda x: x.transpose(0, 1).unsqueeze(2).view(x.shape[1], x.shape[0], -1),
    "into ones": lambda x: x.unsqueeze(1).view(1, x.shape[0], -1, 1),
    "a split": lambda x: x.unsqueeze(1).view(x.shape[0], 1, -1, 2, x.shape[-1]),
}


def outcome(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    try:
        result = function(x)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return result.shape, result.stride(), result.tolist()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_views(name: str, is_read: bool, dynamic: bool | None) -> None:
    def program(x: torch.Tensor) -> Any:
        viewed = PROGRAMS[name](x)
        return viewed if is_read else x

    compiled = aot_compile(program, dynamic=dynamic)
    for size in ((2, 3, 2, 3), (4, 6, 4, 6), (3, 4, 2, 5), (2, 3, 2, 3)):
        x = torch.rand(size)
        assert outcome(compiled, x) == outcome(program, x)
