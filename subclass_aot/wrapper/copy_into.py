"""`copy_`: the one way by which a wrapper takes new values, of its own class or dense.

Note [Fields shared by views]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A view has all of a field along the dims in which the field is broadcast: two columns of a matrix have the scales of
whole rows. New values want other scales, and these belong to the other columns, too. So a write into such a view is a
write into the tensor that it is a view of: that is made dense, written at the place of the view, and taken in anew by
`from_plain`, which rounds the other columns again where scales change.

Autograd knows what is a view of what, and how it was made. Of tensors made in inference mode it does not, nor of those
that another wrapper holds, whose views are made below autograd. So there it is kept here.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from subclass_aot import _torch
from subclass_aot._torch import Operator
from subclass_aot.declaration import Declaration
from subclass_aot.wrapper import errors
from subclass_aot.wrapper.construct import inner_tensors

if TYPE_CHECKING:  # which is made with this
    from subclass_aot.wrapper.base import WrapperTensor

_made_below_autograd: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""For views: what each is a view of, if that is still there, and a function that makes the same view of another."""


def copy_into(
    cls: type[WrapperTensor], func: Operator, self: Any, source: torch.Tensor, non_blocking: bool = False
) -> Any:
    """Same class: field by field. Dense into wrapper: through `from_plain`. Wrapper into dense: through `to_plain`.

    Args:
        cls: The class that is asked.
        func: `copy_`.
        self: What is written.
        source: The new values; broadcast to the size of `self`.
        non_blocking: As of `copy_`.

    Raises:
        OperatorRuleError: The class does not say how it takes these values.
    """
    if not isinstance(self, cls):
        if not hasattr(source, "to_plain"):
            raise errors.no_rule(cls, func, (self, source), {}, f"{cls.__name__} has no to_plain method")
        return self.copy_(source.to_plain(), non_blocking)
    is_same = isinstance(source, cls) and source.__tensor_flatten__() == self.__tensor_flatten__()
    changed = _changed_codes(self, source) if is_same else ""
    if is_same and not changed:
        new: Any = source
    elif hasattr(self, "from_plain"):
        if self.numel() == 0:  # of which no author should have to think
            return self
        new = self.from_plain(_plain(source).expand(self.shape))
    else:
        why = f"{cls.__name__} has no method from_plain(self, plain) that says how a dense tensor becomes one like self"
        why += f", and {changed}" if changed else ""
        raise errors.no_rule(cls, func, (self, source), {}, why)
    values, targets = inner_tensors(new), inner_tensors(self)
    if _shapes(values) != _shapes(targets):
        why = f"the new inner tensors {_shapes(values)} do not fit into {_shapes(targets)}"
        raise errors.no_rule(cls, func, (self, source), {}, why)
    base, _ = _base_of(self)
    shared = [] if base is None else [name for name in targets if _is_shared(name, self, base)]
    if any(values[name] is not targets[name] for name in shared):
        _copy_into_base(cls, func, self, source, base, shared)
        return self
    for name, target in targets.items():
        if name not in shared:
            target.copy_(values[name], non_blocking)
    return self


def shares_fields(view: Any) -> bool:
    """Whether a wrapper is a view that cannot be written without what it is a view of.

    See Note [Fields shared by views].
    """
    if Declaration.of(type(view)) is None:
        return False
    if not hasattr(view, "from_plain"):  # it is written field by field, and these may be such views
        return any(shares_fields(inner) for inner in inner_tensors(view).values())
    return is_part(view)


def is_part(tensor: WrapperTensor) -> bool:
    """Whether a wrapper is a view that shares an element of a field with the rest of what it is a view of."""
    return bool(shared_field(tensor, list(inner_tensors(tensor))))


def shared_field(tensor: torch.Tensor, names: Sequence[str]) -> str:
    """The first of these fields that a view shares with the rest of what it is a view of; "" for none."""
    if _torch.base_of(tensor) is None and not _made_below_autograd:
        return ""
    base, _ = _base_of(tensor)
    return "" if base is None else next((name for name in names if _is_shared(name, tensor, base)), "")


def shares_with(view: torch.Tensor, base: WrapperTensor) -> bool:
    """Whether a view shares an element of a field with what it leaves out of `base`."""
    return any(_is_shared(name, view, base) for name in inner_tensors(base))


def _copy_into_base(
    cls: type[WrapperTensor], func: Operator, view: Any, source: torch.Tensor, base: Any, shared: list[str]
) -> None:
    """See Note [Fields shared by views]."""
    if not (hasattr(base, "from_plain") and hasattr(base, "to_plain")):
        why = f"{shared[0]} is shared with the rest of the tensor that this is a view of, which has no "
        raise errors.no_rule(cls, func, (view, source), {}, why + "to_plain and from_plain to take the new values")
    _, replay = _base_of(view)
    plain = base.to_plain().clone()
    replay(plain).copy_(_plain(source))
    copy_into(cls, func, base, plain)
    again = replay(base)
    for name in shared:  # what a rule for views has made of a field may be a copy of it
        getattr(view, name).copy_(getattr(again, name))


def remember_shared_fields(
    made: object, base: WrapperTensor, func: Operator, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Keeps how a view was made, or each of several, if it shares a field with the rest of its base."""
    first = made[0] if isinstance(made, list) and made else made
    if type(first) is not type(base):  # none at all, or one that reads and writes through its base
        return
    is_symbolic = any(isinstance(size, torch.SymInt) for size in (*base.shape, *first.shape))  # asked at a write
    if is_symbolic or base in _made_below_autograd or shares_with(first, base):
        remember_view(made, base, func, args, kwargs)


def remember_view(
    view: object, base: torch.Tensor, func: Operator, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Keeps what autograd does not know: that `view` is `func(base, *args, **kwargs)`, or the first of several such."""
    views = view if isinstance(view, list | tuple) else [view]
    owner, before = _made_below_autograd.get(base, (weakref.ref(base), lambda tensor: tensor))
    for position, each in enumerate(views):
        again = functools.partial(_again, before, func, args, kwargs, position if views is view else None)
        _made_below_autograd[each] = owner, again


def _again(
    before: Callable[[torch.Tensor], torch.Tensor],
    func: Operator,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    position: int | None,
    tensor: torch.Tensor,
) -> torch.Tensor:
    made: Any = func(before(tensor), *args, **kwargs)
    return made if position is None else made[position]  # type: ignore[no-any-return]


def _base_of(view: torch.Tensor) -> tuple[Any, Callable[[torch.Tensor], torch.Tensor]]:
    """The wrapper that a wrapper is a view of, or None for one that is no view, and what makes the same view again."""
    base = _torch.base_of(view)
    if base is not None:
        return base if type(base) is type(view) else None, _torch.view_function(view)
    owner, again = _made_below_autograd.get(view, (lambda: None, lambda tensor: tensor))
    return owner(), again


def _is_shared(name: str, view: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether an element of a field stands for elements of `base` that `view` has not."""
    inner, whole = getattr(view, name), getattr(base, name)
    return bool(inner.numel() * base.numel() > whole.numel() * view.numel())


def _changed_codes(self: Any, source: Any) -> str:
    """Which inner tensor holds numbers that mean something else in the dtype of `self`, as uint8 codes do in int8."""
    fields = Declaration.of(type(self))
    for name, value in inner_tensors(source).items():
        mine, theirs = getattr(self, name).dtype, value.dtype
        if mine == theirs or mine.is_floating_point and theirs.is_floating_point:
            continue
        if not _holds(mine, theirs) and not (fields is not None and fields.is_structure(name)):
            return f"{name} {theirs} cannot be {mine}"
    return ""


def _holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether each number of `other` is one of `dtype`."""
    try:
        return torch.promote_types(dtype, other) == dtype
    except RuntimeError:  # torch promotes no uint16 and larger
        return False


def _plain(source: Any) -> torch.Tensor:
    return source.to_plain() if hasattr(source, "to_plain") else source  # type: ignore[no-any-return]


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}
