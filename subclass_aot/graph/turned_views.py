"""Views of dense tensors whose sizes or strides changed in place, of which autograd remembers how they were made.

Note [Turned views]
~~~~~~~~~~~~~~~~~~~
In eager mode autograd makes a view of a dense tensor again after a write by its sizes and strides. Of a tensor without
data, as of a wrapper, it knows the view operators instead, and `t_` is none of them: `v = y[:2]; v.t_()` is made again
as `y[:2]`. So a gradient that goes through a write into such a view, or through a view that is made again after one,
would be that of another view.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import torch

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import MutationError
from subclass_aot.graph.messages import TURNED_VIEW
from subclass_aot.meta import MetaTensor


class TurnedViews:
    """Refuses what autograd would differentiate as of another view. See Note [Turned views]."""

    def __init__(self) -> None:
        self._turned_at: dict[
            int, int
        ] = {}  # by the id of a base: its version, after the first of its views was turned

    def copy(self) -> TurnedViews:
        """Returns the same, which later changes do not change."""
        views = TurnedViews()
        views._turned_at = dict(self._turned_at)
        return views

    def note(self, tensor: torch.Tensor) -> None:
        """Hears of a tensor that is going to be turned."""
        base = _torch.base_of(tensor)
        if base is not None and isinstance(tensor, MetaTensor):
            self._turned_at.setdefault(id(base), _torch.version_of(tensor) + 1)

    def refuse_written(self, written: Iterable[object], tensors: Sequence[object], elementwise: bool = False) -> None:
        """Refuses writes that autograd sees.

        Args:
            written: What an operator writes.
            tensors: All that it is given.
            elementwise: Whether it computes element by element.

        Raises:
            MutationError: One is such a view.
        """
        if self._turned_at and torch.is_grad_enabled():
            if any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors):
                self._refuse((x for x in written if self._has_turned_base(x)), elementwise)

    def refuse_read(self, tensors: Iterable[object]) -> None:
        """Refuses what autograd has made again, or makes again now.

        Args:
            tensors: What is read; only tensors count.

        Raises:
            MutationError: One is such a view, and it was written since.
        """
        if self._turned_at:
            self._refuse(x for x in tensors if self._has_turned_base(x) and x.requires_grad and self._is_written(x))

    def _has_turned_base(self, value: object) -> TypeGuard[MetaTensor]:
        return isinstance(value, MetaTensor) and id(_torch.base_of(value)) in self._turned_at

    def _is_written(self, view: MetaTensor) -> bool:
        return _torch.version_of(view) > self._turned_at[id(_torch.base_of(view))]

    def _refuse(self, views: Iterable[MetaTensor], broadcasts: bool = True) -> None:
        for view in views:
            if not _is_made_again(view, broadcasts):
                raise MutationError(TURNED_VIEW.format(shape=list(view.shape), line=user_line()))


def _is_made_again(view: MetaTensor, broadcasts: bool) -> bool:
    """Whether what autograd remembers of a view makes one with the same sizes and strides.

    Args:
        view: The view.
        broadcasts: Whether dims of size 1 before the others make no difference.
    """
    base = _torch.base_of(view)
    with _torch.disable_current_modes(), torch.no_grad():
        again = _torch.view_function(view)(MetaTensor.like(base.detach()), lambda number: number)
    return _dims(again, broadcasts) == _dims(view, broadcasts)


def _dims(view: torch.Tensor, broadcasts: bool) -> list[tuple[int, int]]:
    """The size and stride of each dim."""
    dims = list(zip(view.shape, view.stride(), strict=True))
    return list(itertools.dropwhile(lambda dim: dim[0] == 1, dims)) if broadcasts else dims
