"""Safetensors files: a header in JSON and the bytes of dense tensors, so nothing in them is ever run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.whole_files import written_beside
from subclass_aot.errors import MissingPackageError, StateDictError
from subclass_aot.files.classes import Classes
from subclass_aot.files.leaves import PLAIN, State
from subclass_aot.files.unwrap import KEY, unwrap_state_dict
from subclass_aot.files.wrap import wrap_state_dict
from subclass_aot.meta import MetaTensor


def save_file(state: State, path: str | PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a state dict into a safetensors file, wrappers as what they are made of.

    Args:
        state: A module, or a state dict.
        path: The file.
        metadata: Further strings for the header of the file.

    Raises:
        StateDictError: An entry is nothing that such a file can hold; it says which, and what to write instead.
        MissingPackageError: There is no safetensors.
    """
    safetensors = safetensors_package()
    tensors, said = unwrap_state_dict(state)
    if metadata is not None and KEY in metadata:
        raise StateDictError(f"metadata: {KEY!r} is where this library says what the wrappers are. Take another name")
    seen: set[int] = set()
    dense = {name: _dense(value, name, seen) for name, value in tensors.items()}
    try:
        with written_beside(path) as part:
            safetensors.torch.save_file(dense, part, {"format": "pt", **(metadata or {}), **said})
    except KeyError as error:  # how safetensors says that it has no such dtype
        names = [name for name, tensor in dense.items() if tensor.dtype in error.args]
        raise StateDictError(f"{', '.join(names)}: safetensors has no {error}. Save it in another dtype") from error


def load_file(
    path: str | PathLike[str],
    *,
    like: State | None = None,
    classes: Classes = (),
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Reads a state dict from a safetensors file, with the wrappers that were saved.

    Args:
        path: The file, of `save_file` or of anybody.
        like: A module, or a state dict, whose wrappers say what entries such as `weight.codes` belong to, in a file
            of others. See `wrap_state_dict`.
        classes: Classes that the file may name, besides those that derive from `WrapperTensor` and those in `like`.
        device: Where the tensors go.

    Returns:
        The state dict. `module.load_state_dict` takes it.

    Raises:
        StateDictError: The file does not have what its header says, or names a class that nobody knows.
        MissingPackageError: There is no safetensors.
    """
    safetensors = safetensors_package()
    try:
        with safetensors.safe_open(path, framework="pt", device=str(device)) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
            metadata = file.metadata()
    except (safetensors.SafetensorError, KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
        pass_on_interruption(error)  # the others: a dtype that torch, or this safetensors, does not have
        raise StateDictError(f"{path} is no safetensors file that can be read: {error}") from error
    return wrap_state_dict(tensors, metadata, like=like, classes=classes)


def safetensors_package() -> Any:
    """Returns the package `safetensors`.

    Raises:
        MissingPackageError: It is not installed.
    """
    try:
        importlib.import_module("safetensors.torch")
        return importlib.import_module("safetensors")
    except ImportError as error:
        raise MissingPackageError(
            "files are written and read with the package safetensors, which is not installed:\n"
            "    pip install safetensors\n"
            "unwrap_state_dict and wrap_state_dict do without, for torch.save and others"
        ) from error


def _dense(value: Any, name: str, seen: set[int]) -> torch.Tensor:
    """Returns an entry in the form that a file can hold: contiguous, and in memory of its own."""
    problem = _problem(value)
    if problem:
        raise StateDictError(f"{name} {problem}")
    dense: torch.Tensor = value.detach().resolve_conj().resolve_neg().contiguous()
    address = dense.untyped_storage().data_ptr()
    if address in seen:
        dense = dense.clone()
    seen.add(address)
    return dense


def _problem(value: object) -> str:
    """Returns an error text if an entry cannot be saved, else ""."""
    kind = type(value).__name__
    if not isinstance(value, torch.Tensor):
        return (
            f"is a {kind}, and safetensors holds tensors only. Leave it out, or use torch.save with unwrap_state_dict"
        )
    if is_lazy(value):
        return "is not initialized. Run the module once before"
    if value.is_meta or isinstance(value, MetaTensor):
        return f"has no data, as a {kind} on the device {value.device}. Save the module that has it"
    if hasattr(value, "full_tensor"):
        return "is a DTensor. Save full_tensor(), or use torch.distributed.checkpoint with unwrap_state_dict"
    if value.is_nested:
        return "is a nested tensor. Save its components, or values() and offsets() of a jagged one"
    if value.layout is not torch.strided:
        return (
            f"has the layout {value.layout}, and safetensors holds dense ones. Save to_dense(), or what it is made of"
        )
    if type(value) not in PLAIN and not isinstance(value, nn.Parameter):
        return f"is a {kind}, and its class would be lost. Save value.as_subclass(torch.Tensor)"
    return ""
