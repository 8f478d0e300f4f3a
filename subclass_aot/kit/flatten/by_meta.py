"""Reading and rebuilding one value part by part, by a meta of ours or by one of AOTAutograd's own.

Where a value is read or rebuilt often, generated code does it: see `plan.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.errors import LeafCountError, PlanError
from subclass_aot.kit.flatten import checks
from subclass_aot.kit.flatten.metas import SYMBOLIC, AbsentMeta, ContainerMeta, rebuild


def is_of_wrapper(meta: object) -> bool:
    """Returns whether a meta describes a wrapper. AOTAutograd has numbers for others, or None below a wrapper."""
    return hasattr(meta, "flat_tensor_start_idx")


def read_by(value: Any, meta: Any, *, append_symints: bool, where: str) -> Iterator[Any]:
    """Yields the flat slots of a value. See Note [Leaf order].

    Args:
        value: The value.
        meta: What it is planned to be.
        append_symints: Whether sizes and strides that the meta has as symbolic are read, too.
        where: What errors call it.

    Raises:
        PlanError: It is of another class, or has other inner tensors.
    """
    if isinstance(meta, _Whole):
        if type(value) is not meta.cls:
            checks.wrong_class(value, meta.cls, where)
        yield value
        return
    if not is_of_wrapper(meta):
        if _torch.wrappers.is_traceable_wrapper_subclass(value):
            checks.wrong_class(value, torch.Tensor, where)
        yield value
        return
    cls = _class_of(meta, where)
    if type(value) is not cls:
        checks.wrong_class(value, cls, where)
    names = value.__tensor_flatten__()[0]  # type: ignore[attr-defined]
    attrs = _attrs(meta)
    if list(names) != list(attrs):
        raise PlanError(f"{where}: planned with the inner tensors {list(attrs)}, got {list(names)}.")
    for name, inner in attrs.items():
        yield from read_by(getattr(value, name), inner, append_symints=append_symints, where=f"{where}.{name}")
    for kind in ("size", "stride") if append_symints and hasattr(meta, "included_subclass_symints") else ():
        numbers = getattr(value, kind)()
        yield from (numbers[dim] for dim, n in enumerate(getattr(meta, f"outer_{kind}")) if _is_symbolic(n))


@rebuild.put
def rebuild_by(meta: Any, flat: Sequence[Any], *, is_runtime: bool, where: str) -> Any:
    """Rebuilds a wrapper by its `__tensor_unflatten__`.

    Args:
        meta: What it is.
        flat: The flat list of all values. The wrapper begins at `meta.flat_tensor_start_idx`.
        is_runtime: Whether autograd is to know nothing of it. Else it has the `requires_grad` of the wrapper that was
            described, which AOTAutograd's metas hold.
        where: What errors call it.

    Raises:
        LeafCountError: The list ends before.
        PlanError: There is no tensor where an inner one should be.
    """
    return _Rebuild(flat, is_runtime, meta.flat_tensor_start_idx).wrapper(meta, where)


class _Rebuild:
    """Takes slots of a flat list, in order."""

    def __init__(self, flat: Sequence[Any], is_runtime: bool, start: int) -> None:
        self.flat = flat
        self.is_runtime = is_runtime
        self.at = start

    def take(self, where: str) -> Any:
        if not 0 <= self.at < len(self.flat):
            raise LeafCountError(f"{where}: its slot is number {self.at} of the flat list, which has {len(self.flat)}.")
        self.at += 1
        return self.flat[self.at - 1]

    def part(self, meta: Any, where: str) -> Any:
        if is_of_wrapper(meta):
            return self.wrapper(meta, where)
        if isinstance(meta, AbsentMeta):
            return None
        if isinstance(meta, ContainerMeta):
            parts = {key: self.part(inner, where + meta.step(key)) for key, inner in meta.items.items()}
            return parts if meta.cls is dict else meta.cls(parts.values())
        leaf = self.take(where)
        is_tensor = isinstance(leaf, torch.Tensor)
        if isinstance(meta, _Whole) and is_tensor and type(leaf) is not meta.cls:
            checks.wrong_class(leaf, meta.cls, where)
        if type(meta).__name__ == "OpaqueMeta" and is_tensor:  # ours, or AOTAutograd's
            checks.tensor_instead_of_value(leaf, "an opaque value", where)
        if type(meta).__name__ != "OpaqueMeta" and not is_tensor:
            checks.no_tensor(leaf, where)
        return leaf

    def wrapper(self, meta: Any, where: str) -> Any:
        cls: Any = _class_of(meta, where)
        inner = {name: self.part(part, f"{where}.{name}") for name, part in _attrs(meta).items()}
        size, stride = (self.numbers(meta, kind, inner, where) for kind in ("size", "stride"))
        made = cls.__tensor_unflatten__(inner, meta.meta, size, stride)
        if not self.is_runtime and meta.original_subclass is not None:
            _torch.aotautograd.mirror_autograd(meta.original_subclass, made)
        return made

    def numbers(self, meta: Any, kind: str, inner: dict[str, Any], where: str) -> Any:
        """Returns the outer size or stride, with what stands in its slots for symbolic numbers."""
        has_slots = getattr(meta, "included_subclass_symints", False)
        giver = inner.get(getattr(meta, "symbols_from", None) or "")
        numbers = []
        for dim, number in enumerate(getattr(meta, f"outer_{kind}")):
            if has_slots and _is_symbolic(number):
                given = self.take(f"{where}.{kind}({dim})")
                if isinstance(given, torch.Tensor):
                    checks.tensor_instead_of_value(given, f"a {kind}", f"{where}.{kind}({dim})")
                number = given if number is SYMBOLIC else number
            elif number is SYMBOLIC and giver is not None:
                number = getattr(giver, kind)()[dim]
            numbers.append(number)
        return torch.Size(numbers) if kind == "size" else tuple(numbers)


def _class_of(meta: Any, where: str) -> type[torch.Tensor]:
    """Returns the class of the wrapper that a meta describes; those of torch 2.4 have the wrapper itself.

    Raises:
        PlanError: It has neither.
    """
    cls: type[torch.Tensor] | None = getattr(meta, "original_subclass_type", None)
    if cls is None and meta.original_subclass is None:
        raise PlanError(_NO_CLASS.format(where=where))
    return type(meta.original_subclass) if cls is None else cls


_NO_CLASS = """{where}: its meta does not say of which class it is: `original_subclass` is None.
Keep the wrapper in a meta of torch 2.4, or make one by `create_subclass_meta` of this library, which has the class."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """A wrapper below a wrapper that is one slot: torch 2.4 unwraps one level.

    Unwrapped to the ground it may have no more leaves, so its class is compared.
    """

    cls: type[torch.Tensor]


def _attrs(meta: Any) -> Mapping[str, Any]:
    """Returns the metas of inner tensors by name. Torch 2.4 has the names alone."""
    if hasattr(meta, "attrs"):
        attrs: Mapping[str, Any] = meta.attrs
        return attrs
    inner = {name: getattr(meta.original_subclass, name) for name in meta.inner_keys}
    is_wrapper = _torch.wrappers.is_traceable_wrapper_subclass
    return {name: _Whole(type(part)) if is_wrapper(part) else None for name, part in inner.items()}


def _is_symbolic(number: object) -> bool:
    """Returns whether a size in a meta has a slot: a placeholder, or in AOTAutograd's metas before a call, a symbol."""
    return number is SYMBOLIC or isinstance(number, torch.SymInt) and not _torch.wrappers.is_nested_int(number)
