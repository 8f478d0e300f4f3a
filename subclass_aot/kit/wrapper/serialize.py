"""Copying and saving: what `copy`, `pickle`, `torch.save` and `torch.load` do with a wrapper."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

import torch

from subclass_aot.base import _torch
from subclass_aot.errors import InnerTensorError
from subclass_aot.kit.declaration import MISSING
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import ORIGIN, copy_origin


def reduce(wrapper: Wrapper) -> tuple[Any, ...]:
    """Returns what pickle and `copy.copy` store: everything by name, so that a class may gain fields with a default
    later.
    """
    inner = {name: _picklable(getattr(wrapper, name)) for name in wrapper.__tensor_flatten__()[0]}
    attributes = wrapper.__wrapper_state__()
    others = _others(wrapper, inner, attributes)
    size, stride = tuple(wrapper.shape), tuple(wrapper.stride())
    if not wrapper.__wrapper_declaration__.is_told_by_name:
        context = wrapper.__tensor_flatten__()[1]
        return _rebuild_as_written, (type(wrapper), inner, context, others, size, stride, wrapper.requires_grad)
    return rebuild_wrapper, (type(wrapper), inner, attributes, others, size, stride, wrapper.requires_grad)


def _others(wrapper: Wrapper, *known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an instance holds besides what its class declares, and without the base of a view."""
    return {
        name: value for name, value in vars(wrapper).items() if not any(name in names for names in (*known, [ORIGIN]))
    }


def copied(wrapper: Wrapper) -> Any:
    """Returns another tensor with the same inner tensors, for `copy.copy`."""
    rebuild, contents, *_ = wrapper.__reduce_ex__(4)
    made = rebuild(*contents)
    copy_origin(made, wrapper)
    return made


class _Bits:
    """An inner tensor that goes into a pickle as the bytes of its memory.

    Args:
        tensor: The tensor.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        tensor = self.tensor
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        return _of_bits, (memory, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _of_bits(
    memory: torch.Tensor, dtype: torch.dtype, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> torch.Tensor:
    """Returns the inverse of `_Bits`."""
    return torch.empty(0, dtype=dtype, device=memory.device).set_(memory.untyped_storage(), offset, size, stride)


def _picklable(tensor: torch.Tensor) -> Any:
    return _Bits(tensor) if type(tensor) is torch.Tensor and tensor.dtype in _torch.wrappers.NEW_DTYPES else tensor


def _tensors(inner: Mapping[str, torch.Tensor | _Bits]) -> dict[str, torch.Tensor]:
    """Returns as tensors what `copy.copy` passes on without pickling it."""
    return {name: part.tensor if isinstance(part, _Bits) else part for name, part in inner.items()}


def rebuild_wrapper(
    cls: type[Wrapper],
    inner: dict[str, torch.Tensor],
    attributes: dict[str, Any],
    others: dict[str, Any],
    size: Sequence[int] | None,
    stride: Sequence[int] | None,
    requires_grad: bool,
) -> Any:
    """Returns the inverse of `reduce`.

    Args:
        cls: The wrapper class.
        inner: Inner tensors by name.
        attributes: Context values and layouts by attribute.
        others: What else the instance's `__dict__` held.
        size: Outer size.
        stride: Outer stride.
        requires_grad: Whether it requires grad.

    Returns:
        The wrapper.

    Raises:
        InnerTensorError: The class has lost or gained fields that it cannot do without.
    """
    inner, attributes = _named_now(cls, _tensors(inner)), _named_now(cls, attributes)
    attributes = {**_defaults(cls, inner, attributes), **attributes}
    unknown = (set(inner) | set(attributes)) - set(_names_now(cls, attributes))
    if unknown:
        raise InnerTensorError(
            f"this saved {cls.__name__} holds {sorted(unknown)}, which the class does not declare (any more)"
        )
    wrapper = cls.__tensor_unflatten__(
        _in_order(cls, inner, attributes), context_of(cls, inner, attributes), size, stride
    )
    wrapper.__dict__.update(others)
    return wrapper.requires_grad_() if requires_grad else wrapper


def rebuild_by_name(
    cls: type[Wrapper],
    inner: Mapping[str, torch.Tensor],
    context: Mapping[str, Any],
    size: Sequence[int] | None,
    stride: Sequence[int] | None,
) -> Any:
    """Returns a wrapper of these contents, of which those that were written by an earlier version of the class are
    adapted.

    Args:
        cls: The wrapper class, whose flatten and unflatten are generated.
        inner: Inner tensors by name. How many (or which) a field of several has follows from that.
        context: The values of context fields, by name.
        size: Outer size; None for what the outer rule says.
        stride: Outer stride, likewise.

    Raises:
        InnerTensorError: The class has lost or gained fields that it cannot do without.
    """
    inner = _named_now(cls, inner)
    attributes: dict[str, Any] = _named_now(cls, context)
    for field in cls.__wrapper_declaration__.fields.values():
        of_field = [name.removeprefix(field.name + "_") for name in inner if name.startswith(field.name + "_")]
        if field.kind == "sequence":
            attributes[field.layout_attribute] = len(of_field)
        elif field.kind == "mapping":
            attributes[field.layout_attribute] = tuple(of_field)
    return rebuild_wrapper(cls, inner, attributes, {}, size, stride, False)


def _rebuild_as_written(
    cls: type[Wrapper],
    inner: dict[str, torch.Tensor],
    context: object,
    others: dict[str, Any],
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
) -> Any:
    """Returns the inverse of `reduce` for a class whose author has written flatten or unflatten."""
    wrapper = cls.__tensor_unflatten__(_tensors(inner), context, size, stride)
    wrapper.__dict__.update(others)
    return wrapper.requires_grad_() if requires_grad else wrapper


def _named_now(cls: type[Wrapper], contents: Mapping[str, Any]) -> dict[str, Any]:
    now = {cls.__wrapper_declaration__.named_now(name): value for name, value in contents.items()}
    if len(now) < len(contents):
        raise InnerTensorError(
            f"this saved {cls.__name__} holds {sorted(contents)}, of which two are one field by "
            f"renamed={dict(cls.__wrapper_declaration__.renamed)}"
        )
    return now


def context_of(cls: type[Wrapper], inner: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    """Returns the context as `__tensor_flatten__` would give it for an instance with these contents."""
    context = []
    for field in cls.__wrapper_declaration__.fields.values():
        if field.kind == "optional":
            context.append(field.name in inner)
        elif field.kind != "tensor":
            context.append(attributes[field.name if field.kind == "context" else field.layout_attribute])
    return tuple(context) or None


def _names_now(cls: type[Wrapper], attributes: Mapping[str, Any]) -> list[str]:
    names = list(cls.__wrapper_declaration__.attributes)
    for field in cls.__wrapper_declaration__.fields.values():
        if field.kind == "sequence":
            names += [f"{field.name}_{i}" for i in range(attributes[field.layout_attribute])]
        elif field.kind == "mapping":
            names += [f"{field.name}_{key}" for key in attributes[field.layout_attribute]]
        elif field.kind != "context":
            names.append(field.name)
    return names


def _in_order(cls: type[Wrapper], inner: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inner[name] for name in _names_now(cls, attributes) if name in inner}


def _defaults(cls: type[Wrapper], inner: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values for fields that the file was written without."""
    defaults: dict[str, Any] = {}
    for field in cls.__wrapper_declaration__.fields.values():
        if field.kind == "sequence":
            defaults[field.layout_attribute] = 0
        elif field.kind == "mapping":
            defaults[field.layout_attribute] = ()
        elif field.kind == "context" and field.default is not MISSING:
            defaults[field.name] = field.default
        elif (field.kind == "tensor" and field.name not in inner) or (
            field.kind == "context" and field.name not in attributes
        ):
            raise InnerTensorError(
                f"this saved {cls.__name__} has no {field.name}: it was written before the class had that field. Give "
                f"the field a default ({'torch.Tensor | None = None' if field.kind == 'tensor' else 'a value'}), "
                "so that old files can be read"
            )
    return defaults


def deepcopy(wrapper: Wrapper, memo: dict[int, Any]) -> Any:
    """Copies a wrapper for `copy.deepcopy`: inner tensors that are shared stay shared, through `memo`.

    Raises:
        RuntimeError: The wrapper was computed from tensors that require grad; as for every tensor of torch.
    """
    if id(wrapper) in memo:
        return memo[id(wrapper)]
    if not wrapper.is_leaf:
        raise RuntimeError(
            f"only leaves can be deep-copied: this {type(wrapper).__name__} was computed by "
            f"{_torch.autograd.name_of(wrapper.grad_fn)}. "
            "Copy wrapper.detach(), or clone it to keep the graph"
        )
    names, context = wrapper.__tensor_flatten__()
    inner = {name: copy.deepcopy(getattr(wrapper, name), memo) for name in names}
    attributes = wrapper.__wrapper_state__()
    with torch.no_grad():
        new = type(wrapper).__tensor_unflatten__(inner, copy.deepcopy(context, memo), wrapper.shape, wrapper.stride())
    memo[id(wrapper)] = new
    if origin := vars(wrapper).get(ORIGIN):  # what is shared there is shared here
        vars(new)[ORIGIN] = origin._replace(base=copy.deepcopy(origin.base, memo))
    others = _others(wrapper, inner, attributes)
    new.__dict__.update(copy.deepcopy(others, memo))
    new.requires_grad_(wrapper.requires_grad)
    if wrapper.grad is not None:
        new.grad = copy.deepcopy(wrapper.grad, memo)
    return new


def allow_loading(cls: type[Wrapper]) -> None:
    """Lets `torch.load(weights_only=True)` make instances of `cls`, and of the enums in its context."""
    enums = [
        f.annotation
        for f in cls.__wrapper_declaration__.fields.values()
        if isinstance(f.annotation, type) and issubclass(f.annotation, Enum)
    ]
    safe: list[Any] = [_SafeClass.of(each) for each in (cls, *enums)]
    made_by = (rebuild_wrapper, _rebuild_as_written, _of_bits)
    earlier = [(function, f"subclass_aot.wrapper.serialize.{function.__name__}") for function in made_by]
    torch.serialization.add_safe_globals([*safe, *made_by, *earlier])


class _SafeClass(tuple[Any, str]):
    """The pair that torch registers of a class that may be loaded: the class, and its name.

    Torch keeps what is registered for ever, and unpacks it whenever it loads. So the class is weakly held, and of
    several of one name, as in a notebook, the one that was defined last is loaded.
    """

    _by_name: ClassVar[dict[str, _SafeClass]] = {}
    cls: weakref.ref[type]

    @staticmethod
    def of(cls: type) -> _SafeClass:
        """Returns the one for the name of a class, and has it stand for this class."""
        name = f"{cls.__module__}.{cls.__qualname__}"
        found = _SafeClass._by_name.setdefault(name, _SafeClass((None, name)))
        found.cls = weakref.ref(cls)
        return found

    def __iter__(self) -> Iterator[Any]:
        cls = self.cls()
        return iter((cls, self[1]) if cls is not None else (None, ""))
