"""Places in memory: what a program reads of where tensors lie, and what it reaches from there.

Note [Places in memory]
~~~~~~~~~~~~~~~~~~~~~~~
A graph computes with values. Where an input begins in its storage is no value: the same graph is to serve slices that
begin anywhere, and compilers do not know where theirs begin. `as_strided` counts from the beginning of the storage,
`storage_offset()` is where a tensor begins there; what a program makes of either is a fact of the call, which a
guard compares. Of inputs whose beginning nobody has read, it does not.

In the graph, views are made of the values of what owns the memory: of the input or the operator's result that they are
views of, with steps counted from its first element (`memory_views.py`). Where one reaches places of a storage that its
owner has no element in, the owner is a view of the whole storage, as in Note [Shared storage].

`_unsafe_view`, `unsafe_split` and `unsafe_split_with_sizes` give views that autograd knows nothing of. Here they are
views of what they are made of, once something of that is written.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import is_own, user_line
from subclass_aot.base.operators import argument_at
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.errors import TraceError
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor, Spec, Storage
from subclass_aot.meta.symbols import SizesMustBeKnown

_OUTSIDE = """{operator} reaches out of the memory of a tensor{where}.
  Your line:  {line}
  The tensor: {owner}
  The view:   {view}
  Instead: begin and end within the tensor, or make a larger one."""

_aten = torch.ops.aten
_OFFSET = (3, "storage_offset")
AS_STRIDED, AS_STRIDED_, UNFOLD = _aten.as_strided.default, _aten.as_strided_.default, _aten.unfold.default
AS_STRIDED_COPY, AS_STRIDED_SCATTER = _aten.as_strided_copy.default, _aten.as_strided_scatter.default

COUNTED = {
    AS_STRIDED: _OFFSET,
    AS_STRIDED_: _OFFSET,
    AS_STRIDED_COPY: _OFFSET,
    AS_STRIDED_SCATTER: (4, "storage_offset"),
}
"""Operators that count from where a storage begins, and their argument that says how far."""

SAFE_VIEWS: dict[Any, Any] = {
    _aten._unsafe_view.default: _aten.view.default,
    _aten.unsafe_split.Tensor: _aten.split.Tensor,
    _aten.unsafe_split_with_sizes.default: _aten.split_with_sizes.default,
}
"""By operators that give views without saying so, those that say so."""


class Places(GraphListener):
    """Notes what of the places of tensors in memory a trace depends on. See Note [Places in memory].

    Attributes:
        reaching: Inputs of which a view has places that they have no element in.
        views: The nodes of views that `memory_views.py` may have to make otherwise: each with that of the leaf that
            owns the memory, and with the view; None for one of which no operator says that it is a view.
        counts_in_inputs: Whether one of them counts from where the storage of an input begins.
        began: Where what autograd writes through begins, by the sizes, strides and offset of views that count from the
            beginning of the storage.
    """

    operators = frozenset({*COUNTED, *SAFE_VIEWS, UNFOLD})
    is_shared = True

    def __init__(self) -> None:
        self.views: dict[fx.Node, tuple[fx.Node, Spec | None]] = {}
        self.reaching: set[Storage] = set()
        self.counts_in_inputs = False
        self.began: dict[tuple[Any, ...], set[int]] = {}
        self._is_counted = False
        self._bases: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []  # of leaves in the wrapper that is served

    def fork(self) -> Places:
        places = Places()
        places.reaching, places.began = set(self.reaching), self.began
        places.counts_in_inputs, places.views = self.counts_in_inputs, dict(self.views)
        return places

    def on_wrapper_operator(
        self, recorder: Tape, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if func is not AS_STRIDED or not torch.is_grad_enabled():
            return
        base = _torch.autograd.base_of(args[0])
        if base is None:  # of a wrapper in this one, say, of which autograd knows nothing
            return
        leaves, of_base = FlattenPlan.leaves_of(args[0]), FlattenPlan.leaves_of(base)
        if len(leaves) == len(of_base):
            pairs = zip(leaves, of_base, strict=True)
            self._bases = [(weakref.ref(x), weakref.ref(b)) for x, b in pairs if isinstance(x, MetaTensor)]

    def on_recorded(
        self,
        recorder: Tape,
        node: fx.Node,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        owner = Storage.of(args[0])
        if func in SAFE_VIEWS:
            self.views[node] = owner.tag, None
            for part in result if isinstance(result, tuple | list) else (result,):
                part.meta_storage = owner
            return
        if func is AS_STRIDED and torch.is_grad_enabled() and argument_at(_OFFSET, args, kwargs) is not None:
            self._note_where_it_began(args[0], result.meta_spec)
        view = result.meta_spec if func is UNFOLD else counted_view(func, args[0].meta_spec, args, kwargs)
        self.views[node] = owner.tag, view
        if func is UNFOLD:
            return
        if owner.tag.op == "placeholder" and argument_at(COUNTED[func], args, kwargs) is not None:
            recorder.begins_read.append(owner.tag)
            self.counts_in_inputs = True
        if func is AS_STRIDED_SCATTER or owner in recorder.mutations.extents:
            return
        began: Spec = owner.tag.meta["spec"]
        if not began.has_places_of(view):
            late = recorder.phase == "backward" and owner not in self.reaching  # what the graph is given is settled
            beyond = view.extent * view.dtype.itemsize > recorder.listeners.real_tensors.bytes_of.get(owner, math.inf)
            if owner.tag.op == "call_function" or late or beyond:
                where = ", while gradients are computed" if late else ""
                raise TraceError(_OUTSIDE.format(operator=func, where=where, line=user_line(), owner=began, view=view))
            self.reaching.add(owner)
            self.counts_in_inputs = True

    def _note_where_it_began(self, x: torch.Tensor, view: Spec) -> None:
        known: torch.Tensor | None = _torch.autograd.base_of(x)
        if known is None:
            known = next((base() for leaf, base in self._bases if leaf() is x), None)
        began: Any = (x if known is None else known).storage_offset()
        key = view.size, view.stride, view.offset
        if all(type(number) is int for number in (began, view.offset, *view.size, *view.stride)):
            self.began.setdefault(key, set()).add(began)
        elif type(began) is not int or began:
            raise SizesMustBeKnown

    def counted_from_a_gradient(
        self, gradient: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
    ) -> Any:
        """Makes the view of a gradient that a written tensor had of what it is a view of.

        Autograd calls the operators again by which that view was made. The gradient begins where its storage begins,
        and what it is the gradient of may not.

        Raises:
            TraceError: The view begins before the tensor, or there are several tensors that it may be of.
        """
        key = tuple(size), tuple(stride), storage_offset
        if self._is_counted or storage_offset is None or not _torch.autograd.writes_through_a_view():
            return NotImplemented
        if not all(type(number) is int for number in (storage_offset, *key[0], *key[1])) or key not in self.began:
            return NotImplemented
        began = max(self.began[key])
        if len(self.began[key]) > 1 or storage_offset < began:
            owner = Spec.of(gradient)
            view = Spec.make(*key, owner.dtype, owner.device)
            where = " before its first element, where a gradient is written"
            if len(self.began[key]) > 1:
                where = ", and of another that begins elsewhere, where gradients are written"
            raise TraceError(
                _OUTSIDE.format(operator=AS_STRIDED, where=where, line=user_line(), owner=owner, view=view)
            )
        with PutBack(functools.partial(setattr, self, "_is_counted", False)):
            self._is_counted = True
            return AS_STRIDED(gradient, size, stride, storage_offset - began)


def counted_view(func: Any, source: Spec, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Spec:
    """Returns the spec of what an operator among `COUNTED` reads or writes.

    Args:
        func: The operator.
        source: The spec of its first argument.
        args: Its arguments. Tensors do not matter.
        kwargs: Its keyword arguments.
    """
    first = 2 if func is AS_STRIDED_SCATTER else 1
    size, stride = argument_at((first, "size"), args, kwargs), argument_at((first + 1, "stride"), args, kwargs)
    offset = argument_at(COUNTED[func], args, kwargs)
    begins = source.offset if offset is None else offset
    return Spec.make(tuple(size), tuple(stride), begins, source.dtype, source.device)


def _note(recorder: Tape, x: torch.Tensor) -> Any:
    """Notes that a program reads where a tensor begins."""
    if not is_own(sys._getframe(2)):
        if isinstance(x, MetaTensor):
            recorder.begins_read.append(Storage.of(x).tag)
        elif _torch.wrappers.is_traceable_wrapper_subclass(x):
            recorder.begins_read.append(x)
    return NotImplemented


def _noting(func: _torch.operators.Operator) -> Callable[..., Any]:
    """Makes what notes that an operator on a wrapper counts from where the storage of that begins.

    Of other tensors the operator says so where it is recorded.
    """

    def note_counted(recorder: Tape, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        is_counted = argument_at(COUNTED[func], (x, *args), kwargs) is not None
        if is_counted and _torch.wrappers.is_traceable_wrapper_subclass(x) and not is_own(sys._getframe(2)):
            recorder.begins_read.append(x)
        return NotImplemented

    return note_counted


def _functions_of(func: _torch.operators.Operator) -> list[Any]:
    """Returns what else programs call an operator by."""
    name = func.overloadpacket.__name__
    return [getattr(where, name) for where in (torch, torch.Tensor, _aten) if hasattr(where, name)]


def _fill_diagonal(recorder: Tape, x: torch.Tensor, fill_value: Any, wrap: bool = False) -> Any:
    """Fills a diagonal as torch does, but by a view that does not read where the tensor begins."""
    if not isinstance(x, MetaTensor) or x.dim() < 2:
        return NotImplemented
    if x.dim() > 2 and any(n != x.shape[0] for n in x.shape):
        return NotImplemented  # torch says what is wrong
    diagonal: torch.Tensor = x
    for _ in range(x.dim() - 1):
        diagonal = diagonal.diagonal(0, 0, 1 if diagonal is x else -1)
    diagonal.fill_(fill_value)
    height, width = x.shape[:2]
    if wrap and x.dim() == 2 and height > width + 1:
        step = width + 1
        count = (x.numel() + step - 1) // step - width
        x[step:].as_strided((count,), (sum(x.stride()),)).fill_(fill_value)
    return x


PLACES: dict[Any, Callable[..., Any]] = {
    torch.Tensor.storage_offset: _note,
    _aten.sym_storage_offset: _note,
    _aten.sym_storage_offset.default: _note,
    **{
        function: _noting(func)
        for func in (AS_STRIDED, AS_STRIDED_COPY, AS_STRIDED_SCATTER)
        for function in (func, *_functions_of(func))
    },
    torch.Tensor.fill_diagonal_: _fill_diagonal,
    _aten.fill_diagonal_: _fill_diagonal,
    _aten.fill_diagonal_.default: _fill_diagonal,
}
"""What is called in place of functions that depend on where a tensor begins, with the recorder as first argument."""
