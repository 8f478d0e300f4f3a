from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

class Modes:
    """Reads the modes of torch: gives what `twin` gave for the same modes before."""
    def __new__(cls, twin: Callable[[], tuple[object, ...]]) -> Modes: ...
    def __call__(self) -> tuple[object, ...]: ...

class Recipe:
    """Makes wrappers that differ in nothing but their inner tensors.

    Args:
        cls: Their class.
        size: Outside.
        stride: Outside.
        offset: Outside.
        dtype: Outside.
        device: Outside.
        names: What stands in their `__dict__`, in this order.
        constants: Those of these that are no inner tensors, by name.
        otherwise: What makes a wrapper where an inner tensor has an offset or requires grad; None if that is the same.
    """
    def __new__(
        cls,
        wrapper: type[torch.Tensor],
        size: Sequence[int],
        stride: Sequence[int],
        offset: int,
        dtype: torch.dtype,
        device: torch.device,
        names: tuple[str, ...],
        constants: Mapping[str, object],
        otherwise: Callable[..., torch.Tensor] | None,
    ) -> Recipe: ...
    def __call__(self, *inner: Any) -> torch.Tensor: ...

Layout = tuple[tuple[str, ...], tuple[Description, ...], Mapping[str, object], tuple[str, ...], int, int, Any]
"""The names of inner tensors and what these are; constant attributes; attributes that are None; the storage offset, if
it is compared; how many attributes there are, or -1; a function that says whether the context fits, or None."""
Description = tuple[bool | None, Layout | None]
"""Whether a tensor is a leaf of autograd's graph, or None; of a wrapper, what it is made of."""

class Table:
    """Compares tensors with those of another call, and reads their leaves.

    Args:
        values: Tensors of that call.
        descriptions: Of each, what it is made of.
        others: More tensors, which are compared and not taken apart.
        sizes: Their sizes; None may be anything.
        strides: Likewise.
        same: Says whether a constant is the same, where it is another object.
    """
    def __new__(
        cls,
        values: tuple[torch.Tensor, ...],
        descriptions: tuple[Description, ...],
        others: tuple[torch.Tensor, ...],
        sizes: tuple[Sequence[int | None], ...],
        strides: tuple[Sequence[int | None], ...],
        same: Callable[[object, object], bool],
    ) -> Table: ...
    def __call__(self, values: tuple[Any, ...], *others: Any) -> list[Any] | None:
        """The leaves of the values; None where something is not as it was."""

def set_gradients(ctx: Any, gradients: tuple[Any, ...], /) -> tuple[Any, ...]:
    """Sets `.grad` of leaves where nobody would see the difference, and gives the other gradients.

    Args:
        ctx: Of the `autograd.Function` that runs backward.
        gradients: What its `backward` would return.
    """
