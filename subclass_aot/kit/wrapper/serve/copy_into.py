"""`copy_`: the one way by which a wrapper takes new values, of its own class or dense."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper.declare.construct import inner_tensors
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import base_of, shared_fields, why_without_base
from subclass_aot.kit.wrapper.serve import errors
from subclass_aot.kit.wrapper.serve.dense import dense, where_it_lies

_OTHER_CONTEXT = (
    "from_plain gives a {cls} with {name}={new!r}, and this one has {name}={old!r}: a write goes into the inner "
    "tensors, and cannot change what stands beside them. Make {name} a tensor field, or keep self.{name} in from_plain"
)


def copy_into(cls: type[Wrapper], func: Operator, self: Any, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """Copies field by field between tensors of one class, dense values by `from_plain`, and into dense ones by
    `to_plain`.

    Args:
        cls: The class whose rule runs.
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
        return self.copy_(dense(source), non_blocking)
    is_same = isinstance(source, cls) and source.__tensor_flatten__() == self.__tensor_flatten__()
    if isinstance(source, cls) and is_same and hasattr(self, "from_plain"):  # scales of rows are none of columns
        is_same = _shapes(inner_tensors(source)) == _shapes(inner_tensors(self))
    changed = _changed_codes(self, source) if is_same else ""
    if is_same and not changed:
        new: Any = source
    elif hasattr(self, "from_plain"):
        # Of no elements no author should have to think; they are written none the less, which version counters say.
        new = self if self.numel() == 0 else self.from_plain(_plain(source).expand(self.shape))
        if other := _other_context(self, new):
            raise errors.refused(cls, func, (self, source), other)
    else:
        why = f"{cls.__name__} has no method from_plain(self, plain) that says how a dense tensor becomes one like self"
        why += f", and {changed}" if changed else ""
        raise errors.no_rule(cls, func, (self, source), {}, why)
    values, targets = inner_tensors(new), inner_tensors(self)
    if _shapes(values) != _shapes(targets):
        why = f"the new inner tensors {_shapes(values)} do not fit into {_shapes(targets)}"
        raise errors.no_rule(cls, func, (self, source), {}, why)
    shared = shared_fields(self, targets)
    if any(values[name] is not targets[name] for name in shared):
        _copy_into_base(cls, func, self, source, shared)
        return self
    for name, target in targets.items():
        if name not in shared:
            target.copy_(values[name], non_blocking)
    return self


def _other_context(self: Any, new: Any) -> str:
    """Says which field of the context is another one in what `from_plain` gives; "" where all are the same.

    A write goes into inner tensors. What they mean with the context of `self` is not what they mean with another.
    """
    if type(new) is not type(self):
        return ""
    mine, theirs = self.__wrapper_state__(), new.__wrapper_state__()
    for name, value in mine.items():
        if name in theirs and theirs[name] is not value and theirs[name] != value:
            return _OTHER_CONTEXT.format(cls=type(self).__name__, name=name, new=theirs[name], old=value)
    return ""


def _copy_into_base(cls: type[Wrapper], func: Operator, view: Any, source: torch.Tensor, shared: list[str]) -> None:
    """Copies into the base of a view that shares fields. See Note [Fields shared by views]."""
    if why := why_without_base(view, shared):
        raise errors.refused(cls, func, (view, source), why)
    base, replay = base_of(view)
    if not (hasattr(base, "from_plain") and hasattr(base, "to_plain")):
        why = f"{shared[0]} is shared with the rest of the tensor that this is a view of, which has no "
        raise errors.no_rule(cls, func, (view, source), {}, why + "to_plain and from_plain to take the new values")
    plain = where_it_lies(base)
    replay(plain).copy_(_plain(source))
    copy_into(cls, func, base, plain)
    again = replay(base)
    for name in shared:  # what a rule for views has made of a field may be a copy of it
        getattr(view, name).copy_(getattr(again, name))


def _changed_codes(self: Any, source: Any) -> str:
    """Returns which inner tensor holds numbers that mean something else in the dtype of `self`, as uint8 codes in
    int8.
    """
    fields = Declaration.of(type(self))
    for name, value in inner_tensors(source).items():
        mine, theirs = getattr(self, name).dtype, value.dtype
        if mine == theirs or mine.is_floating_point and theirs.is_floating_point:
            continue
        if not _holds(mine, theirs) and not (fields is not None and fields.is_structure(name)):
            return f"{name} {theirs} cannot be {mine}"
    return ""


def _holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Returns whether each number of `other` is one of `dtype`."""
    try:
        return torch.promote_types(dtype, other) == dtype
    except RuntimeError:  # torch promotes no uint16 and larger
        return False


def _plain(source: Any) -> torch.Tensor:
    return dense(source) if hasattr(source, "to_plain") else source


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}
