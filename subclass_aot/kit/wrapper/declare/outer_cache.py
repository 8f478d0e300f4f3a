"""Finds whether an outer rule reads only the metadata of its fields, so that its answers may be cached.

Note [Cached outer metadata]
    Compiled calls assume that the metadata of a wrapper follows from its class, its context and the metadata of its
    inner tensors. In eager mode the rule runs for each new wrapper, and one that reads more than that (the values of a
    tensor, a global, the clock) is heeded each time. So the kernels of the accelerator cache what a rule said only
    where it can be seen that it is such a function:

    - its bytecode reads the fields of the class, the metadata of tensors (`shape`, `stride`, ...), `Outer`,
      dtypes of torch and a few pure functions, stores nothing but locals, catches no errors, and does not ask whether
      two fields are one;
    - for all metadata that is to be cached, it gives the same of objects that have it, and fail where they are
      asked for more.

    What is cached counts for as long as the class and its bases are as they were.
"""

from __future__ import annotations

import builtins
from types import FunctionType
from typing import Any, Final

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.bytecode import reads_of
from subclass_aot.kit.wrapper.declare.outer import Outer, outer_rule
from subclass_aot.kit.wrapper.kind import Wrapper

_OF_TENSORS: Final = frozenset("shape size stride dtype device layout storage_offset dim ndim numel".split())
_OF_VALUES: Final = frozenset(
    "like are_known lines_up misfit itemsize is_floating_point is_complex to_real to_complex".split()
)
_PURE: Final = frozenset("len tuple list int max min sum range abs".split())


def reads_only_metadata(cls: type[Wrapper]) -> bool:
    """Returns whether the outer rule of a class reads nothing but its context and the metadata of its inner tensors.

    Args:
        cls: A class with an outer rule.

    >>> from subclass_aot import Int8Weight
    >>> reads_only_metadata(Int8Weight)
    True
    """
    rule, stand_in = outer_rule(cls), cls.__wrapper_declaration__.stand_in
    if type(rule) is not FunctionType or rule.__closure__ or any(hasattr(stand_in, name) for name in _OF_TENSORS):
        return False
    names, found = frozenset(cls.__wrapper_declaration__.fields), reads_of(rule.__code__)
    return (
        found is not None
        and all(_is_fixed(name, rule.__globals__) for name in found.globals)
        and all(name in names | _OF_TENSORS | _OF_VALUES or _is_dtype(name) for name in found.attributes)
    )


def _is_fixed(name: str, module: dict[str, Any]) -> bool:
    if name in module:
        return module[name] is Outer or module[name] is torch
    return name in _PURE and hasattr(builtins, name)


def _is_dtype(name: str) -> bool:
    return isinstance(getattr(torch, name, None), torch.dtype)


class _WithoutValues:
    """Stands for an inner tensor in an outer rule: it has metadata, and no values."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype, self.device, self.layout = tensor.shape, tensor.dtype, tensor.device, tensor.layout
        self.ndim, self._stride, self._offset = tensor.ndim, tensor.stride(), tensor.storage_offset()

    def _refuse(self, *_: object) -> Any:
        raise TypeError("it has no values")

    __bool__ = __eq__ = __ne__ = __hash__ = __repr__ = _refuse

    def size(self, dim: int | None = None) -> Any:
        """Returns what `Tensor.size` does."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Returns what `Tensor.stride` does."""
        return self._stride if dim is None else self._stride[dim]

    def storage_offset(self) -> int:
        """Returns what `Tensor.storage_offset` does."""
        return int(self._offset)

    def dim(self) -> int:
        """Returns what `Tensor.dim` does."""
        return self.ndim

    def numel(self) -> int:
        """Returns what `Tensor.numel` does."""
        return self.shape.numel()


@_torch.dynamo.below_dynamo
def follows_from_metadata(made: Wrapper, is_new: bool = True) -> bool:
    """Returns whether `outer_metadata()` gives stand-ins without values the same metadata: its result may be cached.

    Args:
        made: A wrapper of dense inner tensors.
        is_new: Whether it is not known yet that the rule, as it is now, reads metadata alone.
    """
    cls = type(made)
    if is_new and not reads_only_metadata(cls):
        return False
    fields = cls.__wrapper_declaration__.stand_in()
    for name, value in made.__dict__.items():
        fields.__dict__[name] = _WithoutValues(value) if isinstance(value, torch.Tensor) else value
    try:
        outer = outer_rule(cls)(fields)
    except Exception as error:  # of the author's rule, called without values
        pass_on_interruption(error)
        return False
    if type(outer) is not Outer or outer.dtype is not made.dtype or outer.layout is not made.layout:
        return False
    stride, offset = (made.stride(), 0) if outer.stride is None else (outer.stride, outer.storage_offset)
    numbers = [*outer.size, *stride, offset]
    if not all(type(number) is int for number in numbers) or type(outer.device) is not torch.device:
        return False
    told = (*outer.size,), (*stride,), offset, outer.device
    return told == ((*made.shape,), made.stride(), made.storage_offset(), made.device)
