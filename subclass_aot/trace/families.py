"""Inputs that are views of one tensor.

Note [Views of one tensor]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Autograd keeps one history for a tensor and all its views: a write to one view changes the history of the tensor that
they are views of, and through it that of every other view. Inputs are traced as tensors with histories of their own,
which is right until the program makes autograd see a write into one that overlaps another of its family. The trace
gives up then and begins again with the tensor behind the views as the input. Its views are made inside the trace, by
the operators that made the caller's, and autograd treats them there as it treats those: gradients, and writes that it
refuses. A call writes the new value into that tensor, and the caller's views follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.errors import MutationError
from subclass_aot.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor
from subclass_aot.trace import refusals
from subclass_aot.trace.arguments import Arguments, history_owner
from subclass_aot.trace.recorder import Recorder


class SharedHistory(Exception):
    """A write that autograd sees reached several inputs of one family: they must be traced as views.

    Args:
        paths: The tensors of the call that become views.
    """

    def __init__(self, paths: frozenset[str]) -> None:
        super().__init__()
        self.paths = paths


def check_histories(values: Sequence[torch.Tensor], written: Iterable[tuple[int, set[int]]], paths: list[str]) -> None:
    """Looks for families with a member that autograd sees written and another that overlaps it.

    Args:
        values: The tensors that are inputs.
        written: Positions of inputs that autograd sees written, each with those of all that overlap it.
        paths: What each input is called.

    Raises:
        SharedHistory: There are some.
    """
    owners = [history_owner(value) for value in values]
    found = {id(owners[i]) for i, overlap in written if any(owners[j] is owners[i] for j in overlap - {i})}
    if found:
        members = [i for i, owner in enumerate(owners) if id(owner) in found and owner is not values[i]]
        raise SharedHistory(frozenset(paths[i] for i in members))


class TracedViews:
    """The inputs of a trace that are views of other inputs.

    Args:
        arguments: The call.
        traced: Traced twins of its values.
        recorder: Told that the leaves of these views stand for those of the caller's.

    Raises:
        MutationError: Autograd does not treat a caller's view as the view that it is.

    Attributes:
        views: Traced twins of `arguments.views`.
    """

    def __init__(self, arguments: Arguments, traced: Sequence[torch.Tensor], recorder: Recorder) -> None:
        self.paths = arguments.paths_of_views
        self.views = [
            _again(view, traced[position], path)
            for view, position, path in zip(arguments.views, arguments.view_of, self.paths, strict=True)
        ]
        self.plan = FlattenPlan.of(self.views, count_symints=False, where="views", names=self.paths)
        self.leaves = self.plan.unwrap(self.views)
        self.looks = [_look(x) for x in (*self.views, *self.leaves)]
        for real, leaf in zip(self.plan.unwrap(arguments.views), self.leaves, strict=True):
            if isinstance(leaf, MetaTensor) and not isinstance(real, MetaTensor):
                recorder.stand_in(real, leaf)

    def check(self, reshaped: Sequence[torch.Tensor]) -> None:
        """Refuses what a graph cannot do to a view.

        Args:
            reshaped: Tensors that the program turned in place.

        Raises:
            MutationError: A view has other sizes, strides or inner tensors than before.
        """
        paths = [*self.paths, *(self.paths[s.outer] + "".join(s.path) for s in self.plan.index_map.slots)]
        after = [*self.views, *self.plan.unwrap(self.views)]
        for path, tensor, now, look in zip(paths, (*self.views, *self.leaves), after, self.looks, strict=True):
            if _look(now) != look or any(now is turned for turned in reshaped):
                raise MutationError(refusals.RESHAPED_INPUT.format(path=path, before=look, after=_look(now)))
            if now is not tensor:
                raise MutationError(refusals.REPLACED_LEAF.format(path=path))


def _look(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return repr(value.spec) if isinstance(value, MetaTensor) else f"size {list(value.shape)}, stride {value.stride()}"


def _again(view: torch.Tensor, base: torch.Tensor, path: str) -> Any:
    """The view of `base` that `view` is of its own base, to autograd as well."""
    rules = _torch.view_rules(view)
    with torch.set_grad_enabled(not _torch.made_without_grad(rules)):
        again = _torch.view_function(view)(base)
    _torch.set_view_rules(again, rules)
    if again.requires_grad != view.requires_grad or again.is_leaf != view.is_leaf:
        raise MutationError(refusals.SHARED_GRADIENT.format(path=path))
    return again
