"""Wrappers of which a file has the inner tensors and says nothing more: what is expected there says the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.errors import StateDictError
from subclass_aot.files.leaves import is_wrapper
from subclass_aot.files.strides import with_stride
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper import rebuild_by_name


def wrap_like(expected: Any, place: str, flat: dict[str, Any]) -> Any:
    """Returns the wrapper `place`, if there are entries below that name.

    Args:
        expected: A wrapper whose class and context it has.
        place: Its name.
        flat: The entries of the file. Those that belong to the wrapper are taken out.

    Returns:
        The wrapper, or None.

    Raises:
        StateDictError: The entries are not those of such a wrapper.
    """
    found = {name.removeprefix(place + "."): name for name in flat if name.startswith(place + ".")}
    if not found:
        return None
    cls, names = type(expected), expected.__tensor_flatten__()[0]
    declaration = Declaration.of(cls)
    by_name = declaration if declaration is not None and declaration.is_told_by_name else None
    inner: dict[str, Any] = {}
    for name in _in_order(names, [name.partition(".")[0] for name in found]):
        model = getattr(expected, name if by_name is None else by_name.named_now(name), None)
        value = _inner(model, f"{place}.{name}", flat)
        if value is not None:
            inner[name] = value
    for name, whole in found.items():
        if whole in flat:
            raise StateDictError(
                f"{place} is a {cls.__name__}, and {place}.{name} belongs to none of its inner tensors"
            )
    there = set(inner) if by_name is None else set(map(by_name.named_now, inner))
    needed = names if by_name is None else [f.name for f in by_name.fields.values() if f.kind == "tensor"]
    missing = [name for name in needed if name not in there]
    if missing:
        raise StateDictError(
            f"{place} is a {cls.__name__}, and of its inner tensors {', '.join(missing)} is missing; there are "
            f"{', '.join(sorted(found))}"
        )
    if by_name is None:
        return _as_expected(expected, inner, place)
    fields = {field.name: getattr(expected, field.name) for field in by_name.fields.values() if field.kind == "context"}
    try:
        return rebuild_by_name(cls, inner, fields, None, None)
    except Exception as error:  # of the class: what was saved is not what it takes
        pass_on_interruption(error)
        raise StateDictError(f"{place} cannot be made of {', '.join(found.values())}: {error}") from error


def _inner(model: object, place: str, flat: dict[str, Any]) -> Any:
    """Returns the value at the place of an inner tensor, or None."""
    if is_wrapper(model):
        return wrap_like(model, place, flat)
    tensor = flat.pop(place, None)
    if tensor is None or not isinstance(model, torch.Tensor) or tensor.dtype == model.dtype:
        return tensor
    if not (
        tensor.is_floating_point() and model.is_floating_point()
    ):  # another precision is `load_state_dict`'s affair
        raise StateDictError(
            f"{place} is {tensor.dtype}, and {model.dtype} is expected there: its values would mean something else. "
            "Convert it before"
        )
    return tensor


def _as_expected(expected: Any, inner: dict[str, Any], place: str) -> Any:
    """Returns a wrapper like `expected`, whose class cannot give its metadata for other inner tensors."""
    for name, tensor in inner.items():
        model = getattr(expected, name, None)
        if model is None or tensor.shape != model.shape:
            raise StateDictError(
                f"{place}.{name} {'has no place in' if model is None else 'has another size than that of'} the "
                f"{type(expected).__name__} that is expected. Without metadata only a class that derives from "
                "WrapperTensor can give its metadata then"
            )
        if not is_wrapper(model):
            inner[name] = with_stride(tensor, model.stride(), f"{place}.{name}")
    context = expected.__tensor_flatten__()[1]
    return type(expected).__tensor_unflatten__(inner, context, expected.size(), expected.stride())


def _in_order(expected: Iterable[str], found: Iterable[str]) -> list[str]:
    """Returns the names that were found, each once, those that are expected first."""
    names = dict.fromkeys(found)
    return [name for name in expected if name in names] + [name for name in names if name not in set(expected)]
