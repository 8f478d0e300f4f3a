"""Views of dense tensors whose sizes or strides changed in place, of which autograd remembers how they were made.

Note [Mutated views]
~~~~~~~~~~~~~~~~~~~~
In eager mode autograd makes a view of a dense tensor again after a write by its sizes and strides. Of a tensor without
data, as of a wrapper, it knows the view operators instead, and `t_` is none of them: `v = y[:2]; v.t_()` is regenerated
as `y[:2]`. So a gradient that goes through a write into such a view, or through a view that is regenerated after one,
would be that of another view. What a program calls is replaced by operators that autograd knows (`in_place_views.py`).
It is not for `resize_`, for views with hooks, and where a reentrant checkpoint runs its function
again: there such a gradient is refused.

`as_strided` of a view may reach out of that view, into what it is a view of. Eager mode forgets the view after a write,
and a trace goes through it: the gradient of what lies outside would be lost. That is refused, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.graph.listeners.listener import GraphListener, written_leaves
from subclass_aot.engine.graph.listeners.places import AS_STRIDED
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.errors import MutationError
from subclass_aot.meta import MetaTensor

_MESSAGE = """The function changes the size or strides of a view in place, and a gradient goes through a later write.
  The view:   {shape}
  Your line:  {line}
  Here the view is written, or it is used after what it is a view of was written. In a trace, autograd regenerates it
  after a write, and forgets the change.
  Instead: use the operator that returns a new tensor (x.t() instead of x.t_())."""

_LOST = """`as_strided` of a view reaches out of that view, and a gradient goes through a later write.
  The view:   {shape}
  Your line:  {line}
  In a trace, autograd goes through the view that it reaches out of, and loses the gradient of what lies outside.
  Instead: call as_strided on the tensor that it is a view of."""


class MutatedViews(GraphListener):
    """Refuses what autograd would differentiate as of another view. See Note [Mutated views]."""

    effects = ("reshapes",)
    operators = frozenset({AS_STRIDED})
    goes_on = True

    def __init__(self) -> None:
        # By the id of a base: its version after the first metadata mutation of one of its views.
        self._mutated_at: dict[int, int] = {}

    def fork(self) -> MutatedViews:
        views = MutatedViews()
        views._mutated_at = dict(self._mutated_at)
        return views

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        if effects_of(func).reshapes:
            self._note(args[0])
        elif func is AS_STRIDED and not args[0].meta_spec.has_places_of(result.meta_spec):  # type: ignore[attr-defined]
            self._note(args[0], False)
        elif self._mutated_at and (recorder.phase == "forward" or torch.is_grad_enabled()):
            given = [*args, *kwargs.values()]
            self.refuse_read(given)
            self._refuse_written(written_leaves(func, args, kwargs), given, torch.Tag.pointwise in func.tags)

    def has_sibling(self, view: torch.Tensor) -> bool:
        """Returns whether a view of the same base, such as this one, has other metadata than autograd recorded."""
        return id(_torch.autograd.base_of(view)) in self._mutated_at

    def forget_base(self, view: torch.Tensor) -> None:
        """Forgets the views of a base: autograd has recorded the present metadata of them all."""
        self._mutated_at.pop(id(_torch.autograd.base_of(view)), None)

    def _note(self, view: torch.Tensor, counts: bool = True) -> None:
        base = _torch.autograd.base_of(view)
        if base is not None:
            self._mutated_at.setdefault(
                id(base), _torch.autograd.version_of(view) + (counts and torch.is_grad_enabled())
            )

    def _refuse_written(self, written: Iterable[object], tensors: Sequence[object], elementwise: bool = False) -> None:
        """Refuses writes that autograd sees: what is written, all that is given, whether element by element."""
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors):
            self._refuse((x for x in written if self._has_mutated_view(x)), elementwise, reads=False)

    def refuse_read(self, tensors: Iterable[object]) -> None:
        """Refuses views that autograd has regenerated, or regenerates now.

        Args:
            tensors: What is read; only tensors count.

        Raises:
            MutationError: One is such a view, and it was written since.
        """
        if self._mutated_at:
            views = [x for x in tensors if self._has_mutated_view(x)]
            self._refuse(
                x for x in views if x.requires_grad and _torch.autograd.base_of(x).requires_grad and self._is_written(x)
            )

    def loses_gradient(self, view: torch.Tensor) -> bool:
        """Returns whether autograd, where it makes a view again, would lose the gradient of a part that lies
        outside.
        """
        is_written = self._has_mutated_view(view) and view.requires_grad and self._is_written(view)
        return is_written and _why_not_made_again(view, True) == _LOST  # type: ignore[arg-type]

    def _has_mutated_view(self, value: object) -> TypeGuard[MetaTensor]:
        return isinstance(value, MetaTensor) and self.has_sibling(value)

    def _is_written(self, view: MetaTensor) -> bool:
        return _torch.autograd.version_of(view) > self._mutated_at[id(_torch.autograd.base_of(view))]

    def _refuse(self, views: Iterable[MetaTensor], broadcasts: bool = True, reads: bool = True) -> None:
        for view in views:
            message = _why_not_made_again(view, broadcasts)
            if message == _MESSAGE or message and reads:  # the gradient of a write goes the way of the write
                raise MutationError(message.format(shape=list(view.shape), line=user_line()))


class _Outside(_torch.dispatch.DispatchMode):
    """Notes whether `as_strided` reaches out of a view in a `with` block."""

    effects = ("reshapes",)
    operators = frozenset({AS_STRIDED})
    goes_on = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_reached = False

    def __torch_dispatch__(
        self, func: _torch.operators.AnyOperator, types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operator."""
        result: Any = func(*args, **(kwargs or {}))
        if func is AS_STRIDED and not args[0].meta_spec.has_places_of(result.meta_spec):
            self.is_reached = True
        return result


def _why_not_made_again(view: MetaTensor, broadcasts: bool) -> str:
    """Says why what autograd remembers of a view makes no such view, or another gradient; "" if it makes one.

    Args:
        view: The view.
        broadcasts: Whether dims of size 1 before the others make no difference.
    """
    base = _torch.autograd.base_of(view)
    with _torch.dispatch.disable_current_modes(), torch.no_grad(), _Outside() as outside:
        again = _torch.autograd.view_function(view)(MetaTensor.like(base.detach()), lambda number: number)
    if again.meta_spec.offset != view.meta_spec.offset or _dims(again, broadcasts) != _dims(view, broadcasts):
        return _MESSAGE
    return _LOST if outside.is_reached else ""


def _dims(view: torch.Tensor, broadcasts: bool) -> list[tuple[int, int]]:
    """Returns the size and stride of each dim."""
    dims = list(zip(view.shape, view.stride(), strict=True))
    return list(itertools.dropwhile(lambda dim: dim[0] == 1, dims)) if broadcasts else dims
