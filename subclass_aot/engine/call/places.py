"""The places in which the tensors of a call stand."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from subclass_aot.base import _torch


@dataclass(frozen=True, slots=True)
class ArgumentPlace:
    """A tensor among the flattened arguments."""

    leaf: int
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class ModulePlace:
    """A parameter or buffer of a module."""

    module: torch.nn.Module
    table: _torch.modules.TensorTable
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """A tensor that an object of the call holds: its number in `Arguments.objects`. See Note [Objects of a call].

    Attributes:
        number: Its number there.
        path: Where the user finds it.
        pinned: Whether the object is the same at each call.
    """

    number: int
    path: str
    pinned: bool


Place = ArgumentPlace | ModulePlace | HeldPlace
