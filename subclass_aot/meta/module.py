"""A module without data."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch

from subclass_aot.meta.stream import MetaTensor

Module = TypeVar("Module", bound=torch.nn.Module)


def to_meta(module: Module, device: str | torch.device | None = None) -> Module:
    """A copy of `module` whose parameters and buffers are `MetaTensor`s; wrapper parameters keep their class.

    Args:
        module: Any module; it is not changed. Tied parameters stay tied.
        device: The device to claim instead of each tensor's own.

    >>> layer = to_meta(torch.nn.Linear(3, 5))
    >>> layer(MetaTensor(torch.empty(7, 3))).shape
    torch.Size([7, 5])
    """
    memo: dict[int, object] = {}
    for parameter in module.parameters():
        if id(parameter) not in memo:
            twin = MetaTensor.like(parameter, device=device)
            memo[id(parameter)] = torch.nn.Parameter(twin.detach(), requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = MetaTensor.like(buffer, device=device)
    return copy.deepcopy(module, memo)
