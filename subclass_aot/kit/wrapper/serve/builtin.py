"""Default rules for every class: detach and clone, `to`, `empty_like` and `new_*`, `copy_` and views, applied field
by field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import MOVES
from subclass_aot.base.structure_copies import copied_to
from subclass_aot.errors import InnerTensorError
from subclass_aot.kit.wrapper.declare.construct import assemble, inner_tensors
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout import views
from subclass_aot.kit.wrapper.layout.blocks import cut_views
from subclass_aot.kit.wrapper.layout.cuts import CUTS, SEVERAL
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, FieldMap, field_maps, is_kept
from subclass_aot.kit.wrapper.layout.shared_fields import ORIGIN, extend_origin, set_origin_if_shared
from subclass_aot.kit.wrapper.serve import errors
from subclass_aot.kit.wrapper.serve.copy_into import copy_into
from subclass_aot.kit.wrapper.serve.dense import dense
from subclass_aot.kit.wrapper.serve.each import each_handler
from subclass_aot.kit.wrapper.serve.plain import plain_handler, read_through

aten: Any = torch.ops.aten
Handler = Callable[..., Any]

FIELD_BY_FIELD = MOVES - {aten.copy_.default, aten._to_copy.default}
"""Operators that mean the same on every field whatever the class means by its fields."""

_LIKE = {aten._to_copy.default, aten.zeros_like.default, aten.empty_like.default}
NEW = {aten.new_zeros.default, aten.new_empty.default, aten.new_empty_strided.default}


def built_in(cls: type[Wrapper], func: Operator) -> Handler | None:
    """Returns the built-in rule of `cls` for `func`, or None."""
    if func in FIELD_BY_FIELD:
        return each_handler(cls, func)
    if func is aten.copy_.default:
        return lambda *args, **kwargs: copy_into(cls, func, *args, **kwargs)
    if func is aten.zeros_like.default and hasattr(cls, "to_plain"):
        return plain_handler(cls, func)  # zeros in every field may mean anything, and codes are too coarse for a sum
    if func in _LIKE:
        return lambda *args, **kwargs: _like(cls, func, *args, **kwargs)
    if func in NEW:
        return lambda *args, **kwargs: _new(cls, func, *args, **kwargs)
    return viewing(cls, func) if views.is_view(func) else None


def new_of_each(cls: type[Wrapper], func: Operator) -> Handler:
    """Returns the handler of `new_zeros` and its kin for `fallback="each"`: inner tensors of another size keep
    theirs.
    """
    each = each_handler(cls, func)

    def handler(self: Wrapper, size: Sequence[int], *args: Any, **kwargs: Any) -> Any:
        if all(tensor.shape == self.shape for tensor in inner_tensors(self).values()):
            return each(self, size, *args, **kwargs)
        return _new(cls, func, self, size, *args, **kwargs)

    return handler


def rebuild(proto: Wrapper, tensors: dict[str, torch.Tensor], dtype: torch.dtype | None = None) -> Any:
    """Makes a wrapper of the class and context of `proto` that holds `tensors`.

    Args:
        proto: A wrapper.
        tensors: The fields that are tensors.
        dtype: The outer dtype that it ought to have. Where it has not, and one context field is the outer dtype of
            `proto`, that field follows.
    """
    state = proto.__wrapper_state__()
    made = assemble(type(proto), {**tensors, **state})
    if dtype is None or made.dtype == dtype:
        return made
    noted = [name for name, value in state.items() if value is proto.dtype]
    return assemble(type(proto), {**tensors, **state, noted[0]: dtype}) if len(noted) == 1 else made


def _like(cls: type[Wrapper], func: Operator, self: Any, **kwargs: Any) -> Any:
    """Makes a tensor like `self`: another dtype is for the fields that have the outer dtype, everything else for
    all fields.
    """
    wanted = kwargs.get("dtype") or self.dtype
    if wanted.is_floating_point != self.dtype.is_floating_point or wanted.is_complex != self.dtype.is_complex:
        if not hasattr(self, "to_plain"):  # what the fields mean together does not survive such a conversion
            raise errors.no_rule(cls, func, (self,), kwargs, f"{self.dtype} to {wanted} needs a to_plain method")
        return func(dense(self), **kwargs)
    tensors = {}
    for name, tensor in inner_tensors(self).items():
        is_structure = cls.__wrapper_declaration__.is_structure(name)
        if is_structure and func is not aten._to_copy.default:
            tensors[name] = copied_to(tensor, kwargs.get("device"))
        else:
            dtype = None if is_structure else _converted(tensor.dtype, self.dtype, wanted)
            tensors[name] = func(tensor, **{**kwargs, "dtype": dtype})
    result = rebuild(self, tensors, wanted)
    if result.dtype != wanted:
        why = f"no field has the outer dtype {self.dtype}, so none can be converted to {wanted}"
        raise errors.no_rule(cls, func, (self,), kwargs, why)
    return result


def _converted(dtype: torch.dtype, outer: torch.dtype, wanted: torch.dtype) -> torch.dtype | None:
    """Returns the dtype of a field where its tensor goes from `outer_metadata` to `wanted`; None if it stays as it is.

    A field that has the dtype of the tensor follows. So do the real parts of complex numbers.
    """
    if dtype == outer:
        return wanted
    return wanted.to_real() if outer.is_complex and wanted.is_complex and dtype == outer.to_real() else None


_FOR_SHARDS = """.
  for shards:  `fully_shard` asks for this. `subclass_aot.train_fields(module, name, ...)`, with the names of those
               that are trained or none, makes each field a parameter of its own, and these it can cut"""


def _new(
    cls: type[Wrapper],
    func: Operator,
    self: Any,
    size: Sequence[int],
    stride: Sequence[int] | None = None,
    **kwargs: Any,
) -> Any:
    """Makes a tensor of `size`: a field that is broadcast along a dim stays so, and one that is the same for every view
    is the same here, too.

    What a field has in a tensor of another rank is anyone's guess, unless there is nothing in it. So such a tensor is
    dense, if the class says what it stands for. One of the same rank may be meant to take in values of the class, so it
    is of the class, or refused.
    """
    if len(size) != self.dim() and 0 not in size and cls.__wrapper_declaration__.fallback == "plain":
        return plain_handler(cls, func)(self, size, *(() if stride is None else (stride,)), **kwargs)
    new = aten.new_zeros if func is aten.new_zeros.default else aten.new_empty
    wanted = kwargs.get("dtype") or self.dtype
    tensors = {}
    for name, tensor in inner_tensors(self).items():
        if is_kept(self, name):
            tensors[name] = copied_to(tensor, kwargs.get("device"))
            continue
        if cls.__wrapper_declaration__.is_structure(name):
            why = f"{name} is structure, and what it would be in a tensor of {size} is anyone's guess{_FOR_SHARDS}"
            raise errors.no_rule(cls, func, (self, size), kwargs, why)
        own_size = _size_in(self, name, tensor, size)
        if own_size is None:
            of = f"of {name}{list(tensor.shape)} in a tensor of {list(self.shape)}"
            why = f"{of}, it cannot tell what it is in {size}{_FOR_SHARDS}"
            raise errors.no_rule(cls, func, (self, size), kwargs, why)
        dtype = _converted(tensor.dtype, self.dtype, wanted) or tensor.dtype
        tensors[name] = new.default(tensor, own_size, **{**kwargs, "dtype": dtype})
    try:
        result = rebuild(self, tensors, wanted)
    except InnerTensorError as error:  # of an outer rule that compares sizes
        raise errors.no_rule(cls, func, (self, size), kwargs, f"{error}{_FOR_SHARDS}") from None
    if (
        list(result.shape) != list(size)
        or result.dtype != wanted
        or (stride is not None and list(result.stride()) != list(stride))
    ):
        got = f"size {list(result.shape)}, {result.dtype} and strides {result.stride()}"
        why = f"it would have {got}, not {list(size)}, {wanted} and {stride}"
        raise errors.no_rule(cls, func, (self, size), kwargs, why)
    if func is aten.new_zeros.default and 0 not in size and hasattr(cls, "to_plain") and not _is_zero(result):
        if not hasattr(cls, "from_plain"):
            why = "inner tensors of zeros do not mean zero, and there is no from_plain that says what does"
            raise errors.no_rule(cls, func, (self, size), kwargs, why)
        result.copy_(torch.zeros(size, dtype=wanted, device=result.device))
    return result


_MOST_TRIED = 2**20


def _is_zero(new: Any) -> bool:
    """Returns whether a wrapper of zeros means zero: tried on memory of its own, so that it is the same in a graph.

    What kept fields hold cannot be read in a graph. So with those it is not zero if there is a `from_plain` to make it
    so. What is large is not tried.
    """
    inner = inner_tensors(new)
    if any(is_kept(new, name) for name in inner):
        return not hasattr(new, "from_plain")
    try:
        sizes = {name: [_torch.symbolic.example_of(n) for n in tensor.shape] for name, tensor in inner.items()}
    except TypeError:  # sizes depend on data
        return True
    if any(math.prod(size) > _MOST_TRIED for size in sizes.values()):
        return True
    with _torch.dispatch.disable_current_modes():
        state = {name: torch.zeros(sizes[name], dtype=tensor.dtype) for name, tensor in inner.items()}
        try:
            return not rebuild(new, state).to_plain().any()
        except Exception as error:  # what cannot be tried is as the fields are
            pass_on_interruption(error)
            return True


def _size_in(wrapper: Wrapper, name: str, field: torch.Tensor, size: Sequence[int]) -> list[int] | None:
    """Returns the size of a field in a new tensor of `size`; None where it is unknown."""
    if 0 in size and len(size) != wrapper.dim():
        return list(size)
    return field_maps(wrapper, [name], [field.shape])[0].size_in(size)


def viewing(cls: type[Wrapper], func: Operator) -> Handler:
    """Returns a view operator by what `views=` says of each field, or as a view that reads through the whole."""
    view = views.IN_PLACE.get(func, func)
    is_in_place, may_change_nothing = view is not func, view in _MAY_CHANGE_NOTHING
    declaration = cls.__wrapper_declaration__
    are_several, rule, has_all = view in SEVERAL, views.RULES.get(view), view in views.OF_ALL_ELEMENTS
    are_declared, has_blocks = declaration.views is not None, declaration.has_blocks
    may_read_through = declaration.fallback == "plain" and not is_in_place
    reads_through = may_read_through and (not are_declared or has_blocks and view not in CUTS)

    def handler(self: Any, *args: Any, **kwargs: Any) -> Any:
        if may_change_nothing and _changes_nothing(view, self, args, kwargs):
            return aten.alias.default(self)
        if reads_through:
            return _read_through(func, self, args, kwargs)
        try:
            if not are_declared:
                raise CannotFollow(_why_no_views(self, inner_tensors(self)))
            if not has_blocks:
                parts = views.view_fields(view, rule, self, args, kwargs)
            else:
                made: Any = cut_views(view, self, args, kwargs)
        except CannotFollow as error:
            if may_read_through:
                return _read_through(func, self, args, kwargs)
            raise errors.no_rule(cls, func, (self, *args), kwargs, str(error)) from None
        if is_in_place:
            _torch.wrappers.apply_to_outer(func, (self, *args), kwargs)
            self.__dict__.update(parts)
            extend_origin(self, view, args, kwargs)
            return self
        if not has_blocks:
            made = _wrapped(self, parts, are_several)
        if not has_all or ORIGIN in self.__dict__:
            set_origin_if_shared(made, self, func, args, kwargs)
        return made

    return handler


_read_through = _torch.dispatch.resolving_conj_and_neg(read_through)
"""`read_through`, which runs code of authors."""


def _wrapped(base: Wrapper, parts: dict[str, Any], are_several: bool) -> Any:
    """Returns the view of a wrapper that has these parts; a list of views where each part is a list."""
    if are_several:
        each = zip(*parts.values(), strict=True)
        return [_wrapped(base, dict(zip(parts, group, strict=True)), False) for group in each]
    if base.__wrapper_declaration__.attributes:
        parts |= base.__wrapper_state__()
    view = assemble(type(base), parts)
    _torch.wrappers.alias_outer_storage(view, base)
    return view


def _why_no_views(self: Any, tensors: dict[str, torch.Tensor]) -> str:
    """Returns why a class that declares no `views=` has no views, and whether it could."""
    said = f'{type(self).__name__} declares no views="broadcast", and a view of a dense copy would not alias it'
    for name, tensor in tensors.items():
        if tensor.dim() and not FieldMap(name, "broadcast", tensor.shape, self.shape).lines_up():
            return f"{said}; {name}{list(tensor.shape)} does not line up with {list(self.shape)}, so it would not help"
    return said


_MAY_CHANGE_NOTHING = {
    aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.expand.default,
    aten.as_strided.default,
}  # fmt: skip


def _changes_nothing(func: Operator, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if func is not aten.as_strided.default:
        return list(args[0]) == list(self.shape)
    offset = args[2] if len(args) > 2 else kwargs.get("storage_offset")
    same = list(args[0]) == list(self.shape) and list(args[1]) == list(self.stride())
    return same and offset in (None, self.storage_offset())
