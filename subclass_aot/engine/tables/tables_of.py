"""Finds the tables of a value."""

from __future__ import annotations

import enum
import functools
import types
import weakref
from collections.abc import Collection

import torch
from torch.utils.weak import WeakIdKeyDictionary

from subclass_aot.base import _torch
from subclass_aot.engine.tables.classes import ATOMS, has_data, is_object, object_tables, stands_for_another
from subclass_aot.engine.tables.functions import function_tables, is_library
from subclass_aot.engine.tables.table import HOOKS, MODULE_TABLES, Table

_BOOKKEEPING = frozenset(vars(torch.nn.Module())) - {"training"}
"""What stands in the `__dict__` of every module, and says nothing of what this one computes."""

_WEAK_DICTS = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, WeakIdKeyDictionary)
"""Dicts that hold their keys or values weakly. What is compiled holds such of their keys as are no tensors."""

_SEALED = (type, types.ModuleType, types.BuiltinFunctionType, types.GeneratorType)
"""Classes of values that are not walked."""


def tables_of(value: object, pinned: bool, module_name: str | None, whole_modules: bool) -> list[Table]:
    """Returns the tables of a value that is no tensor; none if it holds nothing, or is not walked.

    Args:
        value: The value.
        pinned: Whether it is the same object at each call. Of functions of libraries, no others are walked.
        module_name: The module of Python whose functions have tables of globals.
        whole_modules: Whether a module has tables for parameters, buffers and submodules, too.
    """
    if isinstance(value, torch.nn.Module):
        of_hooks = [Table(name) for name in HOOKS if value.__dict__.get(name)]
        if not whole_modules:
            return [Table("attributes", but=_BOOKKEEPING), *of_hooks]
        notes = filter(_torch.modules.is_bookkeeping, value.__dict__)
        return [Table("attributes", but=_BOOKKEEPING.union(notes)), *of_hooks, *map(Table, MODULE_TABLES)]
    if isinstance(value, types.FunctionType):
        return function_tables(value, module_name) if pinned or not is_library(value) else []
    if type(value) is functools.partial:
        return [Table("partial")]
    if isinstance(value, type) and has_data(value):
        return [Table("class")]
    if isinstance(value, _SEALED):
        return []
    if stands_for_another(value):
        return [Table("attributes", ("__wrapped__",))]
    if isinstance(value, _WEAK_DICTS):
        return [Table("weakly")]
    if type(value) is weakref.WeakSet:
        return [Table("attributes", ("data",))]  # it is a set of weak references
    keys = () if not isinstance(value, dict) or ATOMS.issuperset(map(type, dict.keys(value))) else dict.keys(value)
    with_keys = any(map(is_object, keys))
    return object_tables(value) + [Table("keys")] * with_keys


class Gradients(enum.IntEnum):
    """Of which tensors the `.grad` is a table, too."""

    NONE = 0
    OF_THOSE_THAT_REQUIRE_IT = 1
    OF_ALL = 2  # a tensor that does not require grad may have one, as from before

    def counts(self, tensor: torch.Tensor) -> bool:
        """Returns whether the `.grad` of a tensor is a table."""
        return self == Gradients.OF_ALL or bool(self) and tensor.requires_grad and tensor.is_leaf


def extras_of(tensor: torch.Tensor, with_grad: Gradients = Gradients.NONE) -> list[Table]:
    """Returns the tables of what a program put on a tensor.

    Args:
        tensor: The tensor. Of its `__dict__`, what belongs to the class or to torch is left out.
        with_grad: Of which tensors the `.grad` is a table, too.
    """
    names = getattr(tensor, "__dict__", None)
    found = _attributes_of(tensor, names) if names else []
    return [*found, Table("grad")] if with_grad and with_grad.counts(tensor) else found


def _attributes_of(tensor: torch.Tensor, names: Collection[str]) -> list[Table]:
    own = {name for name in names if _torch.autograd.is_mark(name)}
    if _torch.wrappers.is_traceable_wrapper_subclass(tensor) and len(names) > len(own):
        inner, context = tensor.__tensor_flatten__()
        parts = {name: getattr(tensor, name) for name in inner}
        wanting = {name: x for name, x in parts.items() if isinstance(x, torch.Tensor) and x.requires_grad}
        parts |= {name: x.detach() for name, x in wanting.items()}  # who knows where they stand refuses them
        unflatten = type(tensor).__tensor_unflatten__
        # The class shows it by doing it: what another such wrapper has from its constructor belongs to the class.
        own.update(vars(unflatten(parts, context, tensor.size(), tensor.stride())))
    table = Table("attributes", but=frozenset(own), public=_torch.wrappers.is_traceable_wrapper_subclass(tensor))
    return [table] if any(map(table.has, names)) else []
