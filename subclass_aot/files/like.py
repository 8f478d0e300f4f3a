"""Wrappers of which a file has the inner tensors and says nothing more: what is expected there says the rest."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.declaration import Declaration
from subclass_aot.errors import StateDictError
from subclass_aot.files.leaves import is_wrapper
from subclass_aot.files.strides import with_stride
from subclass_aot.wrapper import rebuild_by_name


def wrap_like(expected: Any, place: str, flat: dict[str, Any]) -> Any:
    """The wrapper `place`, if there are entries below that name.

    Args:
        expected: A wrapper whose class and context it has.
        place: Its name.
        flat: The entries of the file. Those that belong to the wrapper are taken out.

    Returns:
        The wrapper, or None.

    Raises:
        StateDictError: The entries are not those of such a wrapper.
    """
    below = {name.removeprefix(place + "."): name for name in flat if name.startswith(place + ".")}
    if not below:
        return None
    cls = type(expected)
    names, context = expected.__tensor_flatten__()
    declaration = Declaration.of(cls)
    by_name = declaration is not None and declaration.is_told_by_name
    inner: dict[str, Any] = {}
    for name in _in_order(names, [name.partition(".")[0] for name in below]):
        now = declaration.named_now(name) if declaration is not None and by_name else name
        there, model = f"{place}.{name}", getattr(expected, now, None)
        if is_wrapper(model):
            made = wrap_like(model, there, flat)
            inner.update({} if made is None else {name: made})
        elif there in flat:
            inner[name] = flat.pop(there)
            if isinstance(model, torch.Tensor):
                _check_dtype(inner[name], model, there)
    if declaration is not None and by_name:
        now_there = {declaration.named_now(name) for name in inner}
        needed = [field.name for field in declaration.fields.values() if field.kind == "tensor"]
        _check_names(cls, place, set(below), [name for name in needed if name not in now_there])
        fields = {
            field.name: getattr(expected, field.name)
            for field in declaration.fields.values()
            if field.kind == "context"
        }
        try:
            return rebuild_by_name(cls, inner, fields, None, None)
        except Exception as error:
            raise StateDictError(f"{place} cannot be made of {', '.join(below.values())}: {error}") from error
    _check_names(cls, place, set(below), [name for name in names if name not in inner])
    for name, tensor in inner.items():
        model = getattr(expected, name, None)
        if model is None or tensor.shape != model.shape:
            raise StateDictError(
                f"{place}.{name} {'has no place in' if model is None else 'has another size than that of'} the "
                f"{cls.__name__} that is expected. Without metadata only a class that derives from WrapperTensor can "
                "say what it looks like then"
            )
        if not is_wrapper(model):
            inner[name] = with_stride(tensor, model.stride(), f"{place}.{name}")
    return cls.__tensor_unflatten__(inner, context, expected.size(), expected.stride())


def _in_order(expected: list[str], found: list[str]) -> list[str]:
    """The names that were found, each once, those that are expected first."""
    return [name for name in expected if name in found] + [
        name for name in dict.fromkeys(found) if name not in expected
    ]


def _check_names(cls: type, place: str, below: set[str], missing: list[str]) -> None:
    if missing:
        raise StateDictError(
            f"{place} is a {cls.__name__}, and of its inner tensors {', '.join(missing)} is missing; there are "
            f"{', '.join(sorted(below))}"
        )


def _check_dtype(tensor: torch.Tensor, model: torch.Tensor, place: str) -> None:
    """A float may come in another precision, as in `load_state_dict`; codes of another dtype mean something else."""
    if tensor.dtype != model.dtype and not (tensor.is_floating_point() and model.is_floating_point()):
        raise StateDictError(
            f"{place} is {tensor.dtype}, and {model.dtype} is expected there: its values would mean something else. "
            "Convert it before"
        )
