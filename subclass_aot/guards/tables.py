"""The part of a guard that the accelerator runs: tensors, compared with others and read down to their leaves.

What it compares is what `tensor_guards.py` writes into generated code, one line for each thing. It takes the values
that need nothing else: wrappers made of wrappers and dense tensors, of sizes that are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot import _torch, hooks
from subclass_aot.flatten import ContainerMeta, InnerMeta, PlainTensorMeta, SubclassCreationMeta, ValueMeta
from subclass_aot.guards.contexts import absent_fields, constants_of
from subclass_aot.meta import Spec
from subclass_aot.objects import same_constant
from subclass_aot.symbols import is_symbolic

Description = tuple[Any, ...]
"""The description of a tensor for the accelerator: see `Description` in `_accelerator.pyi`."""


class Pattern(NamedTuple):
    """The pattern with which a tensor of a call is compared.

    Attributes:
        value: The tensor of the call that was traced.
        meta: How it is made of leaves.
        specs: In flat order the spec of each leaf, opaque inner values and symbolic sizes.
    """

    value: torch.Tensor
    meta: ValueMeta
    specs: Sequence[Any]

    @property
    def is_symbolic(self) -> bool:
        """Whether some of its sizes are symbols."""
        return any(is_symbolic(spec) or isinstance(spec, Spec) and spec.solver is not None for spec in self.specs)


class TabledValue(NamedTuple):
    """A value that a table compares.

    Attributes:
        value: The tensor of the call that was traced.
        description: Its description for the accelerator.
        leaves: How many leaves it has.
    """

    value: torch.Tensor
    description: Description
    leaves: int


def tabled(patterns: Sequence[Pattern], positions: Iterable[int], leaf: dict[int, bool]) -> dict[int, TabledValue]:
    """Finds the values that a table can compare; without the accelerator there are none.

    Args:
        patterns: What the values of a call are compared with.
        positions: Those that are read at each call.
        leaf: Whether each is a leaf of autograd's graph, where that is compared.
    """
    if hooks.make_table is None or not all(_can_be_compared(value, meta) for value, meta, _ in patterns):
        return {}  # tensors have to differ from one another, so one table compares all of them
    found = {}
    for i in sorted(positions):
        value, meta, _ = patterns[i]
        description = None if patterns[i].is_symbolic else _describe(value, meta, leaf.get(i))
        if description is not None:
            found[i] = TabledValue(value, description, meta.arg_count)
    return found


def make_table(
    values: Sequence[TabledValue],
    others: Sequence[torch.Tensor],
    sizes: Sequence[Sequence[int | None]],
    strides: Sequence[Sequence[int | None]],
) -> Any:
    """Makes what compares tensors with these, and gives the leaves of the first, or None.

    Args:
        values: What is unwrapped.
        others: What is only compared.
        sizes: Their sizes; None may be anything.
        strides: Likewise.
    """
    examples, descriptions = tuple(v.value for v in values), tuple(v.description for v in values)
    assert hooks.make_table is not None
    return hooks.make_table(examples, descriptions, tuple(others), tuple(sizes), tuple(strides), same_constant)


def lines_of(names: Sequence[str], values: Sequence[TabledValue]) -> Iterator[str]:
    """Says in words what a table compares, for those who read generated code.

    Args:
        names: What the values are called there.
        values: The values.
    """
    yield "# What `read_leaves` compares, and what it gives the leaves of:"
    for name, (value, (is_leaf, _), _) in zip(names, values, strict=True):
        history = {None: "", True: ", a leaf of autograd", False: ", no leaf of autograd"}[is_leaf]
        asks = ", requires grad" if value.requires_grad else ""
        text = f"{type(value).__name__} of {value.dtype}, {tuple(value.size())} by {value.stride()}, {value.device}"
        yield f"#   {name}: {text}{asks}{history}"


def _describe(value: Any, meta: InnerMeta, is_leaf: bool | None) -> Description | None:
    """Returns what a value is compared with; None where a table has no means for it."""
    if isinstance(meta, PlainTensorMeta):
        return (is_leaf, None) if _is_plain(value) else None
    if not isinstance(meta, SubclassCreationMeta) or not _is_plain(value):
        return None
    inner = tuple(_describe(getattr(value, name), part, None) for name, part in meta.attrs.items())
    if None in inner:
        return None
    constants = constants_of(value, meta)
    if constants is None or _torch.collectives.waits_when_read(
        meta.cls
    ):  # its class is called, by generated code, which can be read
        return None
    return is_leaf, (tuple(meta.attrs), inner, constants, absent_fields(meta), meta.storage_offset or 0)


def _can_be_compared(value: Any, meta: InnerMeta) -> bool:
    """Returns whether a table can compare a tensor and all that is in it, whoever reads it."""
    match meta:
        case SubclassCreationMeta():
            inner = [_can_be_compared(getattr(value, name), part) for name, part in meta.attrs.items()]
            return _is_plain(value) and all(inner)
        case ContainerMeta():
            return all(_can_be_compared(value[key], part) for key, part in meta.items.items())
        case PlainTensorMeta():
            return _is_plain(value)
    return True


def _is_plain(value: torch.Tensor) -> bool:
    """Returns whether a tensor has sizes and strides that are numbers, and nothing else."""
    return value.layout is torch.strided and all(type(n) is int for n in (*value.size(), *value.stride()))
