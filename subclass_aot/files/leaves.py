"""Entries of a state dict that are unwrapped, and tensors in it that are the same memory."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import nn

from subclass_aot.base import _torch
from subclass_aot.errors import ShardingError, StateDictError
from subclass_aot.ranks import of_distributed

PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
"""The classes of tensors that files hold."""

State = nn.Module | Mapping[str, Any]
"""A module, or what its `state_dict` gives."""


def state_of(state: State) -> Mapping[str, Any]:
    """Returns the entries of a module's state dict, or those given.

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


def is_wrapper(value: object) -> bool:
    """Returns whether a value is unwrapped: a traceable wrapper that torch itself does not save as what it is.

    A distributed tensor is, if it is one of wrappers.
    """
    if not _torch.wrappers.is_traceable_wrapper_subclass(value) or _torch.wrappers.is_jagged(type(value)):
        return False
    return is_wrapper(value.to_local()) if _torch.wrappers.is_distributed(value) else True  # type: ignore[attr-defined]


def parts_of(value: torch.Tensor, place: str = "") -> Any:
    """Returns a wrapper as it is; for a distributed tensor of wrappers, the wrapper of distributed tensors that it is.

    Args:
        value: What `is_wrapper` holds for.
        place: Its name, for errors.

    Raises:
        StateDictError: It cannot be unwrapped.
    """
    if not _torch.wrappers.is_distributed(value):
        return value
    try:
        return of_distributed(value, place)  # type: ignore[arg-type]
    except ShardingError as error:
        raise StateDictError(str(error)) from None


def memory_of(tensor: object) -> Hashable:
    """Returns a key, equal for tensors of the same elements in the same memory; of all else, for the same object."""
    if type(tensor) not in PLAIN or not isinstance(tensor, torch.Tensor) or tensor.is_meta or tensor.is_nested:
        return id(tensor)
    if tensor.layout is not torch.strided or not (address := tensor.untyped_storage().data_ptr()):
        return id(tensor)
    metadata = (tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype, tensor.device)
    return address, *metadata, tensor.is_conj(), tensor.is_neg()
