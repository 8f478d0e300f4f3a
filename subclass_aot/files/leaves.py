"""Which entries of a state dict are taken apart, and which of the tensors in it are the same memory."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import nn

from subclass_aot import _torch
from subclass_aot.errors import StateDictError

PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
"""The classes of tensors that files hold."""

State = nn.Module | Mapping[str, Any]
"""A module, or what its `state_dict` gives."""


def state_of(state: State) -> Mapping[str, Any]:
    """The entries of a module's state dict, or those given.

    Raises:
        StateDictError: A name is no string.
    """
    entries = state.state_dict() if isinstance(state, nn.Module) else state
    for name in entries:
        if not isinstance(name, str):
            raise StateDictError(
                f"the entries of a state dict have names, and this one has the key {name!r}. The state of an optimizer "
                "has names after torch.distributed.checkpoint.state_dict.get_optimizer_state_dict(model, optimizer, "
                "options=StateDictOptions(flatten_optimizer_state_dict=True))"
            )
    return entries


def is_wrapper(value: object, place: str = "") -> bool:
    """Whether a value is taken apart: a traceable wrapper that torch itself does not save as what it is.

    Args:
        value: An entry of a state dict, or an inner tensor.
        place: Its name, for errors.

    Raises:
        StateDictError: It is a distributed tensor of wrappers.
    """
    if not _torch.is_traceable_wrapper_subclass(value) or _torch.is_jagged(type(value)):
        return False
    module: Any = sys.modules.get("torch.distributed.tensor")
    if module is None or not isinstance(value, module.DTensor):
        return True
    local = value.to_local()
    if is_wrapper(local):
        raise StateDictError(
            f"{place} is a DTensor of {type(local).__name__}, whose parts cannot be written one by one. Save "
            f"{place}.to_local(), each rank its own, or {place}.full_tensor()"
        )
    return False


def memory_of(tensor: object) -> Hashable:
    """Equal for tensors that are the same elements in the same memory; of all else, for the same object."""
    if type(tensor) in PLAIN and isinstance(tensor, torch.Tensor) and not (tensor.is_meta or tensor.is_nested):
        if tensor.layout is torch.strided and (address := tensor.untyped_storage().data_ptr()):
            look = (tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype, tensor.device)
            return address, *look, tensor.is_conj(), tensor.is_neg()
    return id(tensor)
