"""The metadata of a wrapper as one tensor, and the rule that gives it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import torch

from subclass_aot.errors import DefinitionError, InnerTensorError
from subclass_aot.kit.wrapper.declare import messages, sizes


class Its(Enum):
    """The type of `ITS`."""

    ITS = "the tensor's own"


ITS: Final = Its.ITS
"""Stands where `Outer.like` takes what the tensor has."""


class Outer(NamedTuple):
    """The metadata that operators see on a wrapper.

    Args:
        size: The sizes.
        stride: The strides; None for contiguous, at offset 0.
        dtype: The element type.
        device: The device.
        layout: The layout.
        storage_offset: The offset, in elements.

    >>> Outer.like(torch.zeros(2, 3, dtype=torch.int8), dtype=torch.float32).dtype
    torch.float32
    """

    size: Sequence[int]
    stride: Sequence[int] | None
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout = torch.strided
    storage_offset: int | torch.SymInt | None = 0

    @classmethod
    def like(
        cls,
        tensor: torch.Tensor,
        *,
        size: Sequence[int] | Its = ITS,
        stride: Sequence[int] | Its | None = ITS,
        dtype: torch.dtype | Its = ITS,
        device: torch.device | Its = ITS,
        layout: torch.layout | Its = ITS,
        storage_offset: int | torch.SymInt | Its | None = ITS,
    ) -> Outer:
        """Returns the metadata of `tensor`, with some of it replaced.

        Args:
            tensor: Where everything is taken from that is not given.
            size: The sizes. New ones without `stride` are contiguous.
            stride: The strides; None for contiguous.
            dtype: The element type.
            device: The device.
            layout: The layout.
            storage_offset: The offset, in elements.

        Returns:
            The outer metadata.
        """
        if stride is ITS:
            stride = tensor.stride() if size is ITS else None
        return cls(
            tensor.shape if size is ITS else size,
            stride,
            tensor.dtype if dtype is ITS else dtype,
            tensor.device if device is ITS else device,
            tensor.layout if layout is ITS else layout,
            tensor.storage_offset() if storage_offset is ITS else storage_offset,
        )

    @staticmethod
    def are_known(*fields: torch.Tensor) -> bool:
        """Returns whether the sizes of fields are numbers: others, a rule does not compare."""
        return sizes.are_known(*fields)

    @staticmethod
    def lines_up(whole: torch.Tensor, *fields: torch.Tensor | None) -> bool:
        """Returns whether fields are as long as the whole along each dim, or 1 there. Dims that they lack are the
        first.
        """
        return sizes.lines_up(whole, *fields)

    @staticmethod
    def misfit(fields: Any, layout: str) -> InnerTensorError:
        """Returns the error for fields whose sizes do not fit.

        Args:
            fields: The `self` of an outer rule.
            layout: The sizes that they should have.
        """
        return sizes.misfit(fields, layout)


def outer_of(cls: type, state: Mapping[str, Any]) -> Outer:
    """Evaluates the outer rule of a wrapper class before the tensor exists.

    Args:
        cls: The wrapper class.
        state: What the instance's `__dict__` will hold.

    Returns:
        What the class's `outer_metadata` method says; without one, the metadata of the first inner tensor.
    """
    rule = outer_rule(cls)
    if rule is None:
        return Outer.like(next(value for value in state.values() if isinstance(value, torch.Tensor)))
    fields = cls.__wrapper_declaration__.stand_in()  # type: ignore[attr-defined]
    fields.__dict__.update(state)
    outer = rule(fields)
    if type(outer) is not Outer:
        raise DefinitionError(messages.OUTER_RESULT.format(cls=cls.__name__, value=outer))
    return outer if outer.stride is not None else outer._replace(storage_offset=None)


def outer_rule(cls: type) -> Any:
    """Returns the `outer_metadata` that the class or a base of its own defines, or None."""
    return getattr(cls, _RULE, None)


def take_rule_of_old_name(cls: type) -> None:
    """Makes a rule that has the name of 0.1, `outer`, the `outer_metadata` of the class, with a warning.

    A method `outer` that takes another tensor is the product, as `torch.Tensor.outer` is, and stays what it is. A class
    that has both names works with this version and with 0.1, so it gets no warning. Up to the next release `t.outer()`
    and `super().outer()` give the metadata.

    Raises:
        DefinitionError: The attribute `outer` cannot be called.
    """
    names: Mapping[str, Any] = next(
        (vars(base) for base in _own_bases(cls) if not vars(base).keys().isdisjoint((_RULE, _OLD))), {}
    )
    old = names.get(_OLD)
    if _RULE not in names and _OLD in names:
        if not callable(old):
            raise DefinitionError(messages.OUTER_NOT_CALLABLE.format(cls=cls.__name__, name=_OLD, value=old))
        if not _takes_self_only(old):
            return
        code = getattr(inspect.unwrap(old), "__code__", take_rule_of_old_name.__code__)
        message = messages.OUTER_OF_OLD_NAME.format(cls=cls.__name__)
        at = (code.co_filename, code.co_firstlineno, cls.__module__)
        warnings.warn_explicit(message, DeprecationWarning, *at)
        setattr(cls, _RULE, old)
    found: Any = getattr(cls, _OLD)
    is_product = (
        found is not torch.Tensor.outer and getattr(found, "__module__", "") != __name__ and not _takes_self_only(found)
    )
    if _RULE in vars(cls) and not is_product:
        setattr(cls, _OLD, _rule_or_product(vars(cls)[_RULE]))


def _own_bases(cls: type) -> tuple[type, ...]:
    return cls.__mro__[: cls.__mro__.index(torch.Tensor)]


def _takes_self_only(rule: Callable[..., Any]) -> bool:
    try:
        return len(inspect.signature(rule).parameters) == 1
    except (TypeError, ValueError):  # a callable that has no signature
        return True


def _rule_or_product(rule: Callable[[torch.Tensor], Outer]) -> Callable[..., torch.Tensor | Outer]:
    def outer(self: torch.Tensor, *vec2: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor | Outer:
        return torch.Tensor.outer(self, *vec2, **kwargs) if vec2 or kwargs else rule(self)

    return outer


_RULE, _OLD = "outer_metadata", "outer"


def stand_in(cls: type) -> type:
    """Returns a class of plain objects with the names that the wrapper class and its own bases define.

    `outer_metadata` needs `self` before there is a tensor. The stand-in says that its class is the wrapper's,
    so that `super().outer_metadata()` works in a rule.
    """
    namespace: dict[str, Any] = {}
    for base in reversed(_own_bases(cls)):
        namespace.update((name, value) for name, value in vars(base).items() if not name.startswith("__"))
    namespace["__class__"] = property(lambda self: cls)
    return type(f"{cls.__name__}Fields", (), namespace)
