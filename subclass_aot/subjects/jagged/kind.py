"""Jagged tensors, of which one dimension is ragged.

Note [Jagged tensors]
~~~~~~~~~~~~~~~~~~~~~
Torch's jagged tensor is a wrapper around its elements (`_values`) and tensors that say where each row begins and ends:
its structure. The size of the ragged dimension is a nested int. It stands for no number: torch keeps, in a registry of
the process, one for each tensor of offsets (of lengths, where there are some), by its identity. Two jagged tensors are
of one shape if they hold the same tensor of offsets, whatever stands in it. So

- inputs that hold one tensor of offsets do so in the trace (whether they do is part of the signature), and a result
  with the offsets of an input is given that very tensor;
- a gradient has the shape of what it belongs to, so it has the structure of it, too: only `_values` is an input of the
  backward graph, or an output;
- a nested int is never a number of the graph, since it would be that of the call which was traced;
- offsets are data. Where a program reads their values (`unbind`), the trace is for these values: they become a
  part of the signature.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.structures import Known
from subclass_aot.kit.flatten import SubclassCreationMeta
from subclass_aot.subjects.jagged.attention import JaggedAttention


class _Jagged(Protocol):
    """The attributes that are read of torch's jagged tensors, whose class has no public name."""

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]: ...
    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: None, stride: None) -> torch.Tensor: ...


_VALUES = (SubclassCreationMeta.step(_torch.wrappers.JAGGED_VALUES),)


class JaggedStructure:
    """The tensors that say where each row of a jagged tensor begins and ends."""

    around = JaggedAttention

    def is_structure(self, path: tuple[str, ...]) -> bool:
        """Returns whether a leaf is something else than the elements."""
        return path[:1] != _VALUES

    def on_traced(self, tensor: torch.Tensor) -> None:
        """Notes how many elements there are, which torch reads of the last offset."""
        values, offsets = _torch.wrappers.parts_of_jagged(tensor)
        offsets.total = values.shape[_torch.wrappers.ragged_dim_of(tensor) - 1]

    def gradient_like(self, like: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Makes a gradient of `like`, both jagged, that has its structure, as the same tensors."""
        own, found = cast(_Jagged, like), cast(_Jagged, gradient)
        names, _ = own.__tensor_flatten__()
        _, context = found.__tensor_flatten__()
        values, _ = _torch.wrappers.parts_of_jagged(found)
        inner = {name: getattr(own, name) for name in names} | {_torch.wrappers.JAGGED_VALUES: values.detach()}
        return own.__tensor_unflatten__(inner, _torch.wrappers.context_of_new(type(like), context), None, None)

    def with_known_values(self, blank: torch.Tensor, traced: torch.Tensor, known: Known) -> torch.Tensor:
        """Makes a jagged tensor of no trace whose structure has the values that a program may have read.

        Args:
            blank: One whose structure has no values.
            traced: The traced tensor that it is like.
            known: Returns the values of a traced tensor.
        """
        own, like = cast(_Jagged, blank), cast(_Jagged, traced)
        names, context = own.__tensor_flatten__()
        inner = {name: getattr(own, name) for name in names}
        for name in names:
            if name != _torch.wrappers.JAGGED_VALUES and (values := known(getattr(like, name))) is not None:
                inner[name] = values
        return own.__tensor_unflatten__(inner, context, None, None)
