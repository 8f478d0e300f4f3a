"""Arguments of the functions under AOTAutograd's names: lists, and metas of ours or of AOTAutograd's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch

from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import PlainTensorMeta, SubclassCreationMeta, ValueMeta

AnyMeta: TypeAlias = Any
"""A meta of a value or of a function: one of this library, or one of AOTAutograd's own."""

_NO_LIST = """`{name}` is {got}, and not a list or tuple of values.
A tensor would be cut into its rows, and a dict into its keys.
Instead of   {function}({name})
write        {function}([{name}])   for one value"""


def refuse_no_list(values: object, name: str, function: str) -> None:
    """Refuses what is no list of values.

    Args:
        values: What was given.
        name: The name of the parameter.
        function: The name of the function.

    Raises:
        PlanError: It is a tensor, a dict, or something else that is no list or tuple.
    """
    if not isinstance(values, list | tuple):
        got = f"a {type(values).__name__}" if isinstance(values, torch.Tensor | dict) else repr(type(values).__name__)
        raise PlanError(_NO_LIST.format(name=name, got=got, function=function))


def are_ours(metas: Iterable[object]) -> bool:
    """Returns whether metas are of this library, and not AOTAutograd's, which are numbers before torch 2.6."""
    return all(isinstance(meta, PlainTensorMeta | SubclassCreationMeta) for meta in metas)


def is_of_wrapper(meta: object) -> bool:
    """Returns whether a meta describes a wrapper."""
    return hasattr(meta, "flat_tensor_start_idx")


def is_of_one_level(meta: object) -> bool:
    """Returns whether a meta describes a wrapper as torch 2.4 does: by the names of its inner tensors alone."""
    return is_of_wrapper(meta) and not hasattr(meta, "attrs")


class Generated:
    """The newest generated functions, by the identity of the metas they were generated for.

    Equality would be slower and not enough: contexts that are equal (`1`, `1.0`, `True`) may rebuild different tensors.
    """

    def __init__(self, make: Callable[..., Callable[[Sequence[Any]], Any]], capacity: int = 256) -> None:
        self._make = make
        self._capacity = capacity
        self._made: OrderedDict[object, tuple[tuple[ValueMeta, ...], Callable[[Sequence[Any]], Any]]] = OrderedDict()

    def get(self, metas: Iterable[ValueMeta], *options: object) -> Callable[[Sequence[Any]], Any]:
        """Returns the function for metas and options, made now if it is not among the newest."""
        kept = tuple(metas)
        key = (tuple(map(id, kept)), options)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = (kept, self._make(kept, *options))  # keeps the metas, so that ids stay theirs
            if len(self._made) > self._capacity:
                self._made.popitem(last=False)
        return found[1]
