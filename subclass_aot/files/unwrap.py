"""Unwraps state dicts: dense tensors by name, and what the wrappers were as text."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from subclass_aot.base import _torch
from subclass_aot.base.named import full_name
from subclass_aot.base.plain_values import Json
from subclass_aot.errors import StateDictError
from subclass_aot.files.context import to_json
from subclass_aot.files.leaves import State, is_wrapper, memory_of, parts_of, state_of
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper import ViewOf

KEY = "subclass_aot"
"""Under this key stands, in the metadata of a file, what its wrappers are."""

VERSION = 1
"""The version of that text. It grows when a reader of an earlier version would read something wrong."""


def unwrap_state_dict(state: State) -> tuple[dict[str, Any], dict[str, str]]:
    """Unwraps the wrappers in a state dict, into entries such as `weight.codes` and `weight.scale`.

    Nothing is copied: the tensors are the inner tensors themselves, so what is written into them, as
    `torch.distributed.checkpoint.load` does, the wrappers have. What is no wrapper stays as it is. Tensors that are the
    same memory, as tied weights are, come once, by their first name.

    Args:
        state: A module, or a state dict.

    Returns:
        The tensors by name, and metadata that says what the wrappers were and what is tied: strings by name. Both go to
        `wrap_state_dict`.

    Raises:
        StateDictError: A wrapper cannot be described; it says where, and what to write instead.

    >>> from subclass_aot import TwoTensor
    >>> tensors, metadata = unwrap_state_dict({"weight": TwoTensor(torch.zeros(2), torch.ones(2))})
    >>> list(tensors)
    ['weight.a', 'weight.b']
    """
    unwrapping = _Unwrapping()
    entries = state_of(state)
    with torch.no_grad():
        for name, value in entries.items():
            if is_wrapper(value):
                unwrapping.wrappers[name] = unwrapping.describe(value, name)
            else:
                unwrapping.add(value, name)
    if not unwrapping.wrappers and not unwrapping.tied:
        return unwrapping.flat, {}
    said = {"version": VERSION, "wrappers": unwrapping.wrappers, "tied": unwrapping.tied}
    return unwrapping.flat, {KEY: json.dumps(said, allow_nan=False)}


class _Unwrapping:
    """The entries that were found so far.

    Attributes:
        flat: The entries by name.
        wrappers: What the wrappers are.
        tied: For a name, that of an earlier entry which is the same memory.
    """

    def __init__(self) -> None:
        self.flat: dict[str, Any] = {}
        self.wrappers: dict[str, Json] = {}
        self.tied: dict[str, Json] = {}
        self._first: dict[Hashable, str] = {}
        self._parts: dict[int, Any] = {}
        self._kept_alive: list[object] = []  # whose ids are in `_first`

    def add(self, value: Any, name: str) -> None:
        """Adds an entry that is not unwrapped."""
        if name in self.flat or name in self.tied:
            raise StateDictError(
                f"there are two entries {name}: one of that name, and an inner tensor of the wrapper "
                f"{name.rpartition('.')[0]}. Give one of them another name"
            )
        if not isinstance(value, torch.Tensor):
            self.flat[name] = value
            return
        first = self._first.setdefault(memory_of(value), name)
        self._kept_alive.append(value)
        if first != name:
            self.tied[name] = first
        else:
            self.flat[name] = value.detach() if value.requires_grad and not is_lazy(value) else value

    def describe(self, wrapper: Any, place: str) -> dict[str, Json]:
        """Adds the leaves of a wrapper, and gives what else is to be known of it."""
        wrapper = self._parts_of(wrapper, place)
        cls = type(wrapper)
        if cls is ViewOf:
            raise StateDictError(
                f"{place} is a view that reads through a {type(wrapper.base).__name__}, and has no inner tensors of "
                f"its own. Save the whole, or {place}.to_plain()"
            )
        names, context = wrapper.__tensor_flatten__()
        entry: dict[str, Json] = {"class": full_name(cls), **_size_and_dtype(wrapper, place)}
        declaration = Declaration.of(cls)
        if declaration is not None and declaration.is_told_by_name:
            fields = [field.name for field in declaration.fields.values() if field.kind == "context"]
            entry["fields"] = {name: to_json(getattr(wrapper, name), f"{place}, field {name}") for name in fields}
        else:
            entry["context"] = to_json(context, f"{place}, context")
        inner: dict[str, Json] = {}
        for name in names:
            value, there = getattr(wrapper, name), f"{place}.{name}"
            if not isinstance(value, torch.Tensor):
                raise StateDictError(f"{there} is a {type(value).__name__}, which belongs to this process and no file")
            if is_wrapper(value):
                inner[name] = self.describe(value, there)
            else:
                self.add(value, there)
                inner[name] = _size_and_dtype(value, there)
        if all(getattr(wrapper, name).device != wrapper.device for name in names):
            entry["device"] = str(wrapper.device)
        entry["inner"] = inner
        return entry

    def _parts_of(self, wrapper: torch.Tensor, place: str) -> Any:
        """Returns the same for the same tensor: what is tied has the same leaves."""
        if id(wrapper) not in self._parts:
            self._parts[id(wrapper)] = parts_of(wrapper, place)
            self._kept_alive.append(wrapper)
        return self._parts[id(wrapper)]


def _size_and_dtype(tensor: torch.Tensor, place: str) -> dict[str, Json]:
    """Returns size, stride and dtype as JSON."""
    if _torch.wrappers.is_jagged(type(tensor)) or any(not isinstance(size, int) for size in tensor.shape):
        raise StateDictError(
            f"{place} has the size {tuple(tensor.shape)}, which is not made of numbers. Of a jagged tensor, hold "
            "values() and offsets() as inner tensors"
        )
    found: dict[str, Json] = {"size": list(tensor.size()), "dtype": str(tensor.dtype).removeprefix("torch.")}
    return {**found, "stride": list(tensor.stride())} if tensor.layout is torch.strided else found
