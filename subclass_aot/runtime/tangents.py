"""Gradients that arrive in backward, brought into the form the graph was traced for."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.errors import TangentError
from subclass_aot.flatten import AbsentMeta, ContainerMeta, InnerMeta, PlainTensorMeta, SubclassCreationMeta
from subclass_aot.meta import Spec

_WRONG_TANGENT = """The gradient of {where} is not of the kind the backward graph was traced for.
  Expected: {expected}
  Got:      {got}
  Instead:  pass a gradient of the expected class{hook}"""

_HOOK = """, or give {cls} the hook

      def __coerce_same_metadata_as_tangent__(self, context, expected_type=None):
          return ...  # self as a {expected_cls} with this context, or None if that is impossible"""


def coerced(tangent: Any, meta: InnerMeta, where: str) -> Any:
    """The tangent as an instance of the class and with the context of `meta`.

    The tangent itself is never changed.

    Raises:
        TangentError: No conversion is known.
    """
    if fits(tangent, meta):
        return tangent
    converted = _by_hook(tangent, meta)
    if converted is None or not fits(converted, meta):
        converted = _by_parts(tangent, meta, where)
    if converted is not None:
        return converted
    expected = _describe(meta)
    hook = ""
    if hasattr(tangent, "__tensor_flatten__"):  # a dense tensor has no class of the user's that could convert it
        hook = _HOOK.format(cls=type(tangent).__name__, expected_cls=expected.split()[0])
    got = _describe_tensor(tangent)
    raise TangentError(_WRONG_TANGENT.format(where=where, expected=expected, got=got, hook=hook))


def fits(tangent: Any, meta: InnerMeta) -> bool:
    """True if a tangent has the class, inner names and context of `meta`, inner wrappers included."""
    if isinstance(meta, PlainTensorMeta):
        return not hasattr(tangent, "__tensor_flatten__") and isinstance(tangent, torch.Tensor)
    if isinstance(meta, SubclassCreationMeta):
        return _same_outside(tangent, meta) and all(fits(getattr(tangent, name), m) for name, m in meta.attrs.items())
    if isinstance(meta, ContainerMeta):
        elements: Any = tangent if type(tangent) is meta.cls else ()
        return len(elements) == len(meta.items) and all(fits(elements[key], m) for key, m in meta.items.items())
    return (tangent is None) is isinstance(meta, AbsentMeta)


def _same_outside(tangent: Any, meta: SubclassCreationMeta) -> bool:
    cls: Any = meta.cls
    if type(tangent) is not cls:
        return False
    names, context = tangent.__tensor_flatten__()
    return tuple(names) == tuple(meta.attrs) and bool(context == meta.context)


def _by_parts(tangent: Any, meta: InnerMeta, where: str) -> Any:
    """Another wrapper of the tangent's class, whose inner tensors are coerced; None where the outside differs, too."""
    if not isinstance(meta, SubclassCreationMeta) or not _same_outside(tangent, meta):
        return None
    inner = {name: coerced(getattr(tangent, name), part, f"{where}.{name}") for name, part in meta.attrs.items()}
    cls: Any = meta.cls
    return cls.__tensor_unflatten__(inner, meta.context, tangent.size(), tangent.stride())


def restrided(leaf: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """A copy of a tangent's leaf with the strides that the graph expects. The leaf itself is never changed."""
    out = torch.empty_strided(leaf.shape, stride, dtype=leaf.dtype, device=leaf.device)
    return out.copy_(leaf)


def zeros(spec: Spec, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """What stands for the gradient of an output that was not used."""
    return torch.empty_strided(size, stride, dtype=spec.dtype, device=spec.device).zero_()


def _by_hook(tangent: Any, meta: InnerMeta) -> Any:
    hook = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
    if hook is None:
        return None
    if not isinstance(meta, SubclassCreationMeta):
        return hook(None, torch.Tensor)
    return hook(meta.context) if type(tangent) is meta.cls else hook(meta.context, meta.cls)


def _describe(meta: InnerMeta) -> str:
    if isinstance(meta, SubclassCreationMeta):
        return f"{meta.cls.__name__} with inner tensors {list(meta.attrs)} and context {meta.context!r}"
    return "Tensor (dense)"


def _describe_tensor(tensor: Any) -> str:
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        return f"{type(tensor).__name__} with inner tensors {list(names)} and context {context!r}"
    return f"{type(tensor).__name__} (dense)"
