"""Inputs that are given as `out=` and get another size, larger or smaller.

An operator gives what it writes into the size of its result. Where that is an input, the graph says so by `resize_` in
front, which a call repeats (see Note [Resized tensors]).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.descriptors import BufferInput, HeldInput, ParamInput, PlainInput, descriptor_of
from subclass_aot.meta import Listener, MetaTensor, Storage


def inputs_to_resize(
    functional: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[MetaTensor, tuple[Any, ...], tuple[Any, ...]]]:
    """Yields inputs that get another size as `out=`, each with that size and its strides.

    Not those that are also read, or share memory with what is: nobody knows what the operator would read then. Nor
    those that require grad, since `resize_` takes none.

    Args:
        functional: The operator that returns what is written.
        args: The arguments of the operator that writes.
        kwargs: Its keyword arguments; those that `functional` does not take are written.
    """
    taken = effects_of(functional).parameters
    read = {name: x for name, x in kwargs.items() if name in taken}
    outs = [x for name, x in kwargs.items() if name not in taken]
    if effects_of(functional).data_dependent or not any(map(_is_input, outs)):
        return
    leaves: list[Any] = optree.tree_leaves((args, read), none_is_leaf=True)  # type: ignore[arg-type]
    storages = {Storage.of(x) for x in leaves if type(x) is MetaTensor}
    with _torch.dispatch.disable_current_modes(), torch.no_grad(), Listener.without_listeners():
        found = functional(*args, **read)
    for out, new in zip(outs, found if isinstance(found, tuple | list) else (found,), strict=True):
        if _is_input(out) and not out.requires_grad and Storage.of(out) not in storages and out.shape != new.shape:
            yield out, new.shape, new.stride()


def _is_input(value: object) -> bool:
    """Returns whether this is an input of the call, and no inner tensor of one and no view."""
    if type(value) is not MetaTensor or value.meta_tag.op != "placeholder":
        return False
    return isinstance(descriptor_of(value.meta_tag), PlainInput | HeldInput | ParamInput | BufferInput)
