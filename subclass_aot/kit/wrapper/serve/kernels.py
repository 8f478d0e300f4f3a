"""Chooses the operators and classes that the kernels of the accelerator serve.

Python finds what serves an operator, and where that is the operator on each inner tensor, it says so to the kernel of
that operator: later calls on wrappers of exactly this class do not come here any more. Whatever is special about a call
comes here as ever (`_native/accelerator/call.h` tells them apart), and so does all that this file says nothing about.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.missing import noting_getattr
from subclass_aot.base.operators import effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.kit.wrapper.declare.construct import assemble, held_here
from subclass_aot.kit.wrapper.declare.outer import outer_rule
from subclass_aot.kit.wrapper.declare.outer_cache import follows_from_metadata, reads_only_metadata
from subclass_aot.kit.wrapper.declare.structure import Treatment, treatment
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import ORIGIN
from subclass_aot.kit.wrapper.serve.kernel_operators import OPERATORS
from subclass_aot.kit.wrapper.serve.planner import ALIASES

_accelerator: Any = hooks.kernels

# At import, when no wrapper of ours can be in the middle of an operator.
INSTALLED: frozenset[str] = frozenset(_accelerator.install_kernels(OPERATORS) if _accelerator is not None else ())
"""The operators that have a kernel of ours: none without the accelerator, nor those that somebody else has one for."""


def serve(cls: type[Wrapper], func: AnyOperator, *, is_view: bool = False, along: int = -1) -> None:
    """Has the kernel of `func` serve wrappers of exactly `cls`, if it can, until a rule is added.

    Args:
        cls: A class whose wrappers `func` treats as "each inner tensor".
        func: The operator.
        is_view: Whether that holds because `func` is a view, of fields that are as the class's `views=` says.
        along: The position of the argument that names a dim along which each field has to be as long as the wrapper; -1
            for none.
    """
    if not INSTALLED or not _torch.operators.is_overload(func) or func.name() not in INSTALLED:
        return
    declaration = cls.__wrapper_declaration__
    held = [field for field in declaration.fields.values() if field.kind in ("tensor", "optional")]
    if not {field.kind for field in declaration.fields.values()} <= {"tensor", "optional", "context"}:
        return
    if not is_read_plainly(cls) or not (is_view or _runs_on_structure(cls, func)):
        return
    has_rule = outer_rule(cls) is not None
    keeps_metadata = func in ALIASES and (has_rule or declaration.has_blocks)
    names, optional = tuple(field.name for field in held), tuple(field.kind == "optional" for field in held)
    fields = (names, optional, declaration.attributes, ORIGIN, functools.partial(_wrap, names))
    asks_outer, heeds_lazy_bits = has_rule and not keeps_metadata, hasattr(cls, "to_plain")
    may_cache = follows_from_metadata if asks_outer and reads_only_metadata(cls) else None
    _accelerator.serve(
        func.name(), cls, *fields, may_cache, asks_outer, is_view, along, keeps_metadata, heeds_lazy_bits
    )


def forget(cls: type[Wrapper]) -> None:
    """Has every operator on wrappers of `cls` go to Python again."""
    if INSTALLED:
        _accelerator.forget(cls)


@contextmanager
def without_kernels() -> Iterator[None]:
    """Runs the block with all operators on wrappers in Python, in all threads."""
    if not INSTALLED:
        yield
        return
    before = _accelerator.switch_kernels(True)
    with PutBack(functools.partial(_accelerator.switch_kernels, before)):
        _accelerator.switch_kernels(False)
        yield


def hits() -> Counter[str]:
    """Returns by operator how many calls its kernel has served in this process."""
    return Counter(_accelerator.kernel_hits() if INSTALLED else {})


def is_read_plainly(cls: type[Wrapper]) -> bool:
    """Returns whether operators reach the library first, and fields are what stands in `__dict__` under their names.

    What Python sees of the metadata of such a wrapper is what C++ sees.

    Args:
        cls: The class.
    """
    if "__tensor_flatten__" not in cls.__wrapper_declaration__.generated:
        return False
    for name, plain in _PLAIN.items():
        found = _found(cls, name)
        if found is not plain and found is not noting_getattr:  # which wrappers have while a function is traced
            return False
    return all(held_here(_found(cls, name)) for name in cls.__wrapper_declaration__.fields)


def _found(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


_PLAIN: dict[str, Any] = {}
"""What a class has to have from the library or from torch, by name: filled when `WrapperTensor` is there."""


def register_base(base: type[Wrapper]) -> None:
    """Notes what `WrapperTensor` itself has, so that a class which has something else is recognized."""
    for name in ("__torch_dispatch__", "__getattribute__", "__getattr__", *_METADATA):
        _PLAIN[name] = _found(base, name)


_METADATA = ("shape", "dtype", "device", "layout", "stride", "storage_offset")


def _runs_on_structure(cls: type[Wrapper], func: Operator) -> bool:
    """Returns whether fields that are structure are treated as all others are."""
    declaration = cls.__wrapper_declaration__
    if not any(declaration.is_structure(name) for name in declaration.fields):
        return True
    effects = effects_of(func)
    return treatment(func, effects) is Treatment.RUNS and "dtype" not in effects.parameters


@_torch.dynamo.below_dynamo
def _wrap(names: tuple[str, ...], proto: Wrapper, *inner: torch.Tensor | None) -> Any:
    """Returns the wrapper that generated code makes of these results, like `proto`; None stands for an absent field."""
    state: dict[str, Any] = {name: one for name, one in zip(names, inner, strict=True) if one is not None}
    return assemble(type(proto), state | proto.__wrapper_state__())
