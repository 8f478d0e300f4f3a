"""A module without data."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch

from subclass_aot.cost.devices import Device, claim_of
from subclass_aot.cost.without_data.copies import deep_copied
from subclass_aot.cost.without_data.mode import DataFree, meta, running_stream
from subclass_aot.meta import MetaTensor

Module = TypeVar("Module", bound=torch.nn.Module)


def to_meta(module: Module, device: str | torch.device | Device | None = None) -> Module:
    """Returns a copy of `module` whose parameters and buffers are `MetaTensor`s; wrapper parameters keep their class.

    Each forward runs as inside `subclass_aot.meta(device)`: what it makes has no data either, and claims `device` where
    the program names none.

    Args:
        module: Any module; it is not changed. Tied parameters stay tied. What cannot be copied, as a lock or a Python
            module that is an attribute, is shared.
        device: The device to claim instead of each tensor's own: one of torch's, or a profile, as for
            `subclass_aot.meta`.

    >>> layer = to_meta(torch.nn.Linear(3, 5))
    >>> layer(MetaTensor(torch.empty(7, 3))).shape
    torch.Size([7, 5])
    """
    claim, _ = claim_of(device)
    memo: dict[int, object] = {}
    for parameter in module.parameters():
        if id(parameter) not in memo:
            made = MetaTensor.like(parameter, device=claim)
            memo[id(parameter)] = torch.nn.Parameter(made.detach(), requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = MetaTensor.like(buffer, device=claim)
    fake: Module = deep_copied(module, memo)
    for part in fake.modules():
        if not isinstance(part, torch.jit.ScriptModule):
            part.forward = DataFreeForward(part, device)
    return fake


class DataFreeForward:
    """The `forward` of a module without data. In a trace, where nothing has data anyway, it is that of the class.

    Args:
        module: The module.
        device: What tensors claim to be on where the program names no device.
    """

    def __init__(self, module: torch.nn.Module, device: str | torch.device | Device | None) -> None:
        self.module = module
        self.device = device
        self.own = vars(module).get("forward")  # where somebody has given this one module another

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.forward)

    @property
    def forward(self) -> Any:
        """What runs."""
        own = self.own
        if isinstance(own, DataFreeForward):  # of a module that had no data before
            return own.forward
        return type(self.module).forward.__get__(self.module) if own is None else own

    def __call__(self, *args: object, **kwargs: object) -> Any:
        running = running_stream()
        if running is not None and (self.device is None or not isinstance(running, DataFree)):  # which has all of it
            return self.forward(*args, **kwargs)
        with meta(self.device):
            return self.forward(*args, **kwargs)
