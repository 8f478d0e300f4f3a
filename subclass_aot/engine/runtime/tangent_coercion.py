"""Gradients that arrive in backward: whether they are what the graph was traced for, and how to make them so.

Note [Gradients of another kind]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A gradient with another class, context or inner tensors than the graph was traced for becomes what is expected by the
first of these that applies: `__coerce_same_metadata_as_tangent__` of its class; `from_tangent` of the expected class;
the same for each of its inner tensors, where only they differ. What cannot be converted gets a backward of its own
(`runtime/unexpected_tangents.py`). The user's gradient is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import torch

from subclass_aot.base import _torch
from subclass_aot.kit.flatten import AbsentMeta, ContainerMeta, InnerMeta, PlainTensorMeta, SubclassCreationMeta
from subclass_aot.meta import MetaTensor, Spec, new_leaf
from subclass_aot.meta.symbols import is_symbolic


def converted(tangent: object, meta: InnerMeta, specs: Sequence[Any]) -> Any:
    """Returns the tangent in the form that `meta` and `specs` describe; None where no conversion is known."""
    if fits(tangent, meta, specs):
        return tangent
    for convert in (_by_its_class, _by_expected_class, _by_parts):
        result = convert(tangent, meta, specs)
        if result is not None and fits(result, meta, specs):
            return result
    return None


def fits(tangent: object, meta: InnerMeta, specs: Sequence[Any]) -> bool:
    """Returns True if a tangent is what the graph was traced for, all the way down. Strides may differ.

    Args:
        tangent: The tangent, or something inside it.
        meta: The class, inner names and context it should have.
        specs: The sizes and dtypes that its leaves should have.
    """
    if isinstance(meta, PlainTensorMeta):
        if not isinstance(tangent, torch.Tensor) or hasattr(tangent, "__tensor_flatten__"):
            return False
        (spec,) = specs
        return tangent.dtype is spec.dtype and same_size(tangent.size(), spec.size)
    if isinstance(meta, SubclassCreationMeta) and _torch.wrappers.is_jagged(meta.cls):
        return _fits_jagged(tangent, meta, specs)
    if isinstance(meta, SubclassCreationMeta):
        return _same_outside(tangent, meta) and all(
            fits(getattr(tangent, name), part, own) for name, part, own in _parts(meta.attrs, specs)
        )
    if isinstance(meta, ContainerMeta):
        elements: Any = tangent if type(tangent) is meta.cls else ()
        return len(elements) == len(meta.items) and all(
            fits(elements[key], part, own) for key, part, own in _parts(meta.items, specs)
        )
    return (tangent is None) is isinstance(meta, AbsentMeta)


def _fits_jagged(tangent: object, meta: SubclassCreationMeta, specs: Sequence[Any]) -> bool:
    """Returns whether a jagged tangent fits.

    Autograd has compared sizes, so its structure is that of the result. See Note [Jagged tensors].
    """
    if type(tangent) is not meta.cls or not hasattr(tangent, "__tensor_flatten__"):
        return False
    _, context = tangent.__tensor_flatten__()
    values, part, own = next(iter(_parts(meta.attrs, specs)))
    return context["ragged_idx"] == meta.context["ragged_idx"] and fits(getattr(tangent, values), part, own)


def same_size(size: Sequence[int], expected: Sequence[Any]) -> bool:
    """Returns whether sizes are as expected; where those are symbolic, they follow from what autograd has compared."""
    return len(size) == len(expected) and all(is_symbolic(e) or n == e for n, e in zip(size, expected, strict=True))


def _parts(metas: Mapping[Any, InnerMeta], specs: Sequence[Any]) -> Iterator[tuple[Any, InnerMeta, Sequence[Any]]]:
    """Yields the parts of a wrapper: name, meta, and share of the specs."""
    start = 0
    for name, meta in metas.items():
        yield name, meta, specs[start : start + meta.arg_count]
        start += meta.arg_count


def _same_outside(tangent: object, meta: SubclassCreationMeta) -> TypeGuard[torch.Tensor]:
    if type(tangent) is not meta.cls or not hasattr(tangent, "__tensor_flatten__"):
        return False
    names, context = tangent.__tensor_flatten__()
    if tuple(names) != tuple(meta.attrs):
        return False
    geometry = tangent.size(), tangent.stride()
    return bool(context == meta.context_of(*geometry)) or bool(context == meta.context_restrided(*geometry))


def _by_its_class(tangent: object, meta: InnerMeta, specs: Sequence[Any]) -> Any:
    hook = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
    if hook is None:
        return None
    if not isinstance(meta, SubclassCreationMeta):
        return hook(None, torch.Tensor)
    context = _context_for(tangent, meta)
    return hook(context) if type(tangent) is meta.cls else hook(context, meta.cls)


def _by_expected_class(tangent: object, meta: InnerMeta, specs: Sequence[Any]) -> Any:
    if not isinstance(meta, SubclassCreationMeta):
        return None
    convert: Any = getattr(meta.cls, "from_tangent", None)
    return None if convert is None else convert(tangent, _context_for(tangent, meta))


def _by_parts(tangent: object, meta: InnerMeta, specs: Sequence[Any]) -> Any:
    """Returns another wrapper like the tangent, whose inner tensors are converted; None where the outside differs,
    too.
    """
    if not isinstance(meta, SubclassCreationMeta) or not _same_outside(tangent, meta):
        return None
    inner = {name: converted(getattr(tangent, name), part, own) for name, part, own in _parts(meta.attrs, specs)}
    if any(inner[name] is None and not isinstance(part, AbsentMeta) for name, part in meta.attrs.items()):
        return None
    cls: Any = meta.cls
    return cls.__tensor_unflatten__(inner, _context_for(tangent, meta), tangent.size(), tangent.stride())


def _context_for(tangent: object, meta: SubclassCreationMeta) -> Any:
    """Returns the context that a tangent should have, with its own sizes."""
    known = isinstance(tangent, torch.Tensor) and tangent.dim() == len(meta.outer_size)
    return meta.context_of(tangent.size(), tangent.stride()) if known else meta.context  # type: ignore[attr-defined]


def restrided(leaf: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Returns a copy of a tangent's leaf with the strides that the graph expects. The leaf itself is never changed."""
    out = leaf.new_empty_strided(leaf.shape, stride)  # without data, if the leaf has none
    return out.copy_(leaf)


def zeros(spec: Spec, size: tuple[int, ...], stride: tuple[int, ...], without_data: bool) -> torch.Tensor:
    """Returns zeros as the gradient of an output that was not used."""
    if without_data:
        return new_leaf(Spec.make(size, stride, 0, spec.dtype, spec.device, spec.layout))
    return torch.empty_strided(size, stride, dtype=spec.dtype, device=spec.device).zero_()


def any_without_data(tangents: Sequence[object]) -> bool:
    """Returns whether a tangent has no data, and so zeros beside it have none, either."""
    return any(map(_has_no_data, tangents))


def _has_no_data(tangent: object) -> bool:
    if tangent is None or not _torch.wrappers.is_traceable_wrapper_subclass(tangent):
        return isinstance(tangent, MetaTensor)
    names, _ = tangent.__tensor_flatten__()
    return any(_has_no_data(getattr(tangent, name)) for name in names)
