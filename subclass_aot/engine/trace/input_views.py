"""Inputs that are views of one tensor.

Note [Views of one tensor]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Autograd keeps one history for a tensor and all its views: a write to one view changes the history of the tensor that
they are views of, and through it that of every other view. Inputs are traced as tensors with histories of their own,
which is right until the program makes autograd see a write into one that overlaps another view of its base. The trace
gives up then and begins again with the tensor behind the views as the input. Its views are made inside the trace, by
the operators that made the user's, and autograd treats them there as it treats those: gradients, and writes that it
refuses. A call writes the new value into that tensor, and the user's views follow.

Here the guard compares of which tensor the inputs are views, and the call writes that one:

>>> import subclass_aot as sa
>>> def f(a, b):
...     a.mul_(2)
...     return b + 1
>>> x = torch.ones(4, requires_grad=True) * 1
>>> compiled = sa.aot_compile(f, fw_compiler="eager")
>>> y = compiled(x[:2], x[1:])
>>> print(compiled.source)
def call(...):
    ...
    args_0__base = args_0._base
    if args_1._base is not args_0__base: return MISS
    ...
    if view_rules(args_0) != rules: return MISS
    ...
    (made_0, made_1, ) = run([...], non_differentiable, [], args_0__base)
    args_0__base.copy_(made_0)
    return made_1
    ...

Results that are views of one tensor are treated likewise: it goes through autograd, and the views are made of it.

>>> def g(x):
...     y = x * 2
...     return y[:1], y[1:]
>>> compiled = sa.aot_compile(g, fw_compiler="eager")
>>> y, z = compiled(torch.ones(3, requires_grad=True))
>>> print(compiled.source)
def call(...):
    ...
    (made_0, ) = run([...], non_differentiable, [], ...)
    view = view_of(made_0)
    view_1 = view_of_1(made_0)
    return (view, view_1, )
    ...
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.aliasing import autograd_base
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.graph import Recorder, Retrace, messages
from subclass_aot.errors import MutationError
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.views import regenerated_view
from subclass_aot.kit.wrapper import shares_fields
from subclass_aot.meta import MetaTensor


def check_histories(
    values: Sequence[torch.Tensor], written: Mapping[int, set[int]], overlapping: Container[int], paths: Sequence[str]
) -> None:
    """Looks for views of one base of which autograd sees one written that overlaps another, or itself.

    With a write, all views of a base that required no grad begin to require some, whether they overlap or not.

    Args:
        values: The tensors that are inputs.
        written: Positions of inputs that autograd sees written, each with those of all that overlap it.
        overlapping: Positions of inputs that no new value can be copied into. See Note [Internal overlap].
        paths: What each input is called.

    Raises:
        Retrace: There are some.
        MutationError: One that overlaps itself is no view of another tensor.
    """
    owners = [autograd_base(value) for value in values]
    found = set()
    for i, overlap in written.items():
        if i in overlapping and owners[i] is values[i]:
            raise MutationError(messages.OVERLAPPING_INPUT.format(path=paths[i]))
        touched = overlap if owners[i].requires_grad else range(len(values))
        if i in overlapping or any(owners[j] is owners[i] for j in touched if j != i):
            found.add(id(owners[i]))
    if found:
        members = [i for i, owner in enumerate(owners) if id(owner) in found and owner is not values[i]]
        raise Retrace(views=frozenset(paths[i] for i in members))


def check_shared_fields(values: Sequence[torch.Tensor], written: Collection[int], paths: Sequence[str]) -> None:
    """Looks for written wrappers whose class writes what they are views of, which is no input then.

    Args:
        values: The tensors that are inputs.
        written: Positions of those that are written.
        paths: What each input is called.

    Raises:
        Retrace: There are some.
        MutationError: One was made in inference mode, or detached; autograd does not know as which view.
    """
    found = [i for i in written if shares_fields(values[i])]
    for i in found:
        if autograd_base(values[i]) is values[i]:
            raise MutationError(messages.SHARED_FIELD.format(path=paths[i]))
    if found:
        raise Retrace(views=frozenset(paths[i] for i in found))


class TracedViews:
    """The inputs of a trace that are views of other inputs.

    Args:
        arguments: The call.
        traced: Traced fakes of its values.
        recorder: Told that the leaves of these views stand for those of the user's.

    Raises:
        MutationError: Autograd does not treat a user's view as the view that it is.

    Attributes:
        views: Traced fakes of `arguments.views`.
    """

    def __init__(self, arguments: Arguments, traced: Sequence[torch.Tensor], recorder: Recorder) -> None:
        self.paths = arguments.paths_of_views
        self.views = [
            _regenerated(view, traced[position], path)
            for view, position, path in zip(arguments.views, arguments.view_of, self.paths, strict=True)
        ]
        self.plan = FlattenPlan.of(self.views, count_symints=False, where="views", names=self.paths, are_given=True)
        self.leaves = self._read()
        self.specs = [getattr(leaf, "meta_spec", None) for leaf in self.leaves]
        for real, leaf in zip(self.plan.leaves_of_all(arguments.views), self.leaves, strict=True):
            if isinstance(leaf, MetaTensor) and not isinstance(real, MetaTensor):
                recorder.listeners.real_tensors.stand_in(real, leaf)

    def _read(self) -> list[Any]:
        return [_torch.plain_subclasses.leaf_of(x) for x in self.plan.leaves_of_all(self.views)]

    def check(self, metadata_mutated: Collection[int]) -> None:
        """Refuses what a graph cannot do to a view.

        Args:
            metadata_mutated: Positions of views that operators such as `t_` changed, which a call repeats.

        Raises:
            MutationError: Another view has other sizes, strides or inner tensors than before.
        """
        slots = self.plan.index_map.slots
        for slot, leaf, spec, now in zip(slots, self.leaves, self.specs, self._read(), strict=True):
            path = self.paths[slot.outer] + "".join(slot.path)
            if slot.outer in metadata_mutated or not isinstance(leaf, MetaTensor):
                continue
            if now is not leaf:
                raise MutationError(messages.REPLACED_LEAF.format(path=path))
            if now.meta_spec is not spec:
                raise MutationError(messages.METADATA_MUTATED.format(path=path, before=spec, after=now.meta_spec))


def _regenerated(view: torch.Tensor, base: torch.Tensor, path: str) -> Any:
    """Returns the view of `base` that `view` is of its own base, to autograd as well."""
    rules = _torch.autograd.view_rules(view)
    again: Any
    with torch.set_grad_enabled(not _torch.autograd.made_without_grad(rules)):
        if isinstance(base, MetaTensor) and view.dtype is base.dtype:
            offset = int(view.storage_offset() - base.storage_offset())
            again = regenerated_view(base, view.size(), view.stride(), offset)
        else:
            again = _torch.autograd.view_function(view)(base)
    if again is not None and _torch.plain_subclasses.is_plain_subclass(type(view)):
        again = again.as_subclass(type(view))
    if again is None:
        raise MutationError(messages.LOST_VIEW_OF_INPUT.format(path=path))
    _torch.autograd.set_view_rules(again, rules)
    if again.requires_grad != view.requires_grad or again.is_leaf != view.is_leaf:
        raise MutationError(messages.SHARED_GRADIENT.format(path=path))
    return again
