"""Tensors whose memory stays where it is from call to call."""

from __future__ import annotations

from typing import TypeVar

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.call.arguments import Arguments
from subclass_aot.engine.call.places import ModulePlace

_Tensor = TypeVar("_Tensor", bound=torch.Tensor)


def mark_static_address(tensor: _Tensor) -> _Tensor:
    """Says that `tensor` is passed again at later calls, and that its memory, or that of its leaves, stays in place.

    Compilers get it (see `JointSignature.static_input_indices`), and a wrapper is unwrapped once and not at each
    call. What a module brings is static without a mark. The values may change, and so may the tensor: what is passed
    is checked at each call. A compiled function holds it until a call brings another. It is the mark that
    `torch.compile` knows, too.

    Args:
        tensor: A dense tensor or a wrapper.

    Returns:
        The tensor itself.

    >>> weight = mark_static_address(torch.ones(2))
    >>> is_marked(weight), is_marked(torch.ones(2))
    (True, False)
    """
    _torch.dynamo.mark_static_address(tensor)
    return tensor


def is_marked(tensor: torch.Tensor) -> bool:
    """Returns whether `mark_static_address`, here or in torch, was called on `tensor`."""
    return _torch.dynamo.has_static_address(tensor)


def static_values(arguments: Arguments) -> frozenset[int]:
    """Returns the positions of values whose memory stays in place: what modules hold, and what was marked."""
    of_modules = {position for place, position in arguments.placed if isinstance(place, ModulePlace)}
    return frozenset(i for i, value in enumerate(arguments.values) if i in of_modules or is_marked(value))
