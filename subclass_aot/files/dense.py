"""State dicts without wrappers: what these stand for in their place."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.errors import StateDictError
from subclass_aot.files.leaves import State, is_wrapper, memory_of, state_of


def dense_state_dict(state: State) -> dict[str, Any]:
    """Returns a state dict that a dense model can load: each wrapper is replaced by the dense tensor that it means.

    Args:
        state: A module, or a state dict.

    Returns:
        The state dict: `to_plain()` of each wrapper, everything else as it is. What was tied is one tensor.

    Raises:
        StateDictError: A wrapper stands for no dense tensor.

    >>> from subclass_aot import Int8Weight
    >>> dense_state_dict({"weight": Int8Weight.from_float(torch.eye(2))})
    {'weight': tensor([[1., 0.],
            [0., 1.]])}
    """
    made: dict[Hashable, torch.Tensor] = {}
    result: dict[str, Any] = {}
    with torch.no_grad():
        for name, value in state_of(state).items():
            if is_wrapper(value):
                key = _same(value)
                if key not in made:
                    made[key] = _plain(value, name)
                value = made[key]
            result[name] = value
    return result


def _plain(value: Any, place: str) -> torch.Tensor:
    while is_wrapper(value):
        local = value.to_local() if _torch.wrappers.is_distributed(value) else value
        if not hasattr(local, "to_plain"):
            raise StateDictError(
                f"{place} is a {type(local).__name__}, which has no to_plain to say which dense tensor it stands for. "
                "Put that into the state dict first, or write it:\n\n    def to_plain(self):\n        ...\n"
            )
        plain = local.to_plain()
        if local is not value:
            where = value.device_mesh, value.placements
            plain = type(value).from_local(plain, *where, run_check=False, shape=value.shape, stride=value.stride())
        value = plain
    return value  # type: ignore[no-any-return]


def _same(wrapper: Any) -> Hashable:
    """Returns a key that is equal for wrappers that are the same memory and are read in the same way."""
    if not is_wrapper(wrapper):
        return memory_of(wrapper)
    if _torch.wrappers.is_distributed(wrapper):
        return _same(wrapper.to_local()), wrapper.placements, wrapper.shape
    names, context = wrapper.__tensor_flatten__()
    inner = tuple((name, _same(getattr(wrapper, name))) for name in names)
    try:
        hash(context)
    except TypeError:
        return id(wrapper)
    return type(wrapper), inner, context, wrapper.size(), wrapper.stride()
