"""The part of a guard that the accelerator runs: tensors, compared with others and read down to their leaves.

What it compares is what `tensor_guards.py` writes into generated code, one line for each thing. It takes the values
that need nothing else: wrappers made of wrappers and dense tensors, of sizes that are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.engine.facts import Fact, Facts, Kind, words_of
from subclass_aot.engine.facts import fact as kinds
from subclass_aot.engine.guards.contexts import absent_fields, constants_of
from subclass_aot.engine.objects import same_constant
from subclass_aot.kit.flatten import InnerMeta, PlainTensorMeta, SubclassCreationMeta, ValueMeta

Description = tuple[Any, ...]
"""The description of a tensor for the accelerator: see `Description` in `_accelerator.pyi`."""


class Pattern(NamedTuple):
    """The pattern with which a tensor of a call is compared.

    Attributes:
        value: The tensor of the call that was traced.
        meta: How it is made of leaves.
        fact: Its metadata; of a number that is a symbol, its text; None where nothing of it is compared.
    """

    value: torch.Tensor
    meta: ValueMeta
    fact: kinds.Metadata | str | None

    @property
    def is_symbolic(self) -> bool:
        """Whether some of its sizes are symbols."""
        is_number = isinstance(self.fact, str) and not self.fact.isdigit()
        numbers = [n for part in _parts(self.fact) for n in (*part.size, *part.stride)]
        return is_number or any(type(n) is str and n != kinds.RAGGED for n in numbers)


class TabledValue(NamedTuple):
    """A value that a table compares.

    Attributes:
        value: The tensor of the call that was traced.
        metadata: Its metadata.
        description: Its description for the accelerator.
        leaves: How many leaves it has.
    """

    value: torch.Tensor
    metadata: kinds.Metadata
    description: Description
    leaves: int


def tabled(patterns: Sequence[Pattern], positions: Iterable[int], facts: Facts) -> dict[int, TabledValue]:
    """Finds the values that a table can compare; without the accelerator there are none.

    Args:
        patterns: What the values of a call are compared with.
        positions: Those that are read at each call.
        facts: The facts of that call, among them which values are leaves of autograd's graph, where that counts.
    """
    parts = [part for pattern in patterns for part in _parts(pattern.fact)]
    if hooks.make_table is None or not all(part.layout is torch.strided for part in parts):
        return {}  # tensors have to differ from one another, so one table compares all of them
    leaf = {int(fact.within): fact.value for fact in facts if fact.kind is Kind.LEAF}
    found = {}
    for i in sorted(positions):
        value, meta, metadata = patterns[i]
        description = _describe(value, meta, metadata, leaf.get(i))
        if description is not None:
            assert isinstance(metadata, kinds.Metadata)
            found[i] = TabledValue(value, metadata, description, meta.arg_count)
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
    for name, (_, metadata, (is_leaf, _), _) in zip(names, values, strict=True):
        history = {None: "", True: ", a leaf of autograd", False: ", no leaf of autograd"}[is_leaf]
        yield f"#   {name}: {words_of(Fact(name, Kind.TENSOR, metadata))}{history}"


def _describe(value: Any, meta: InnerMeta, fact: object, is_leaf: object = None) -> Description | None:
    """Returns what a value is compared with; None where a table has no means for it."""
    if not isinstance(fact, kinds.Metadata) or not all(type(n) is int for n in (*fact.size, *fact.stride)):
        return None
    if isinstance(meta, PlainTensorMeta):
        return is_leaf, None
    if not isinstance(meta, SubclassCreationMeta) or meta.symbolic_sizes or meta.symbolic_strides:
        return None
    parts = zip(meta.attrs.items(), fact.inner, strict=True)
    inner = tuple(_describe(getattr(value, name), part, of_part) for (name, part), (_, of_part) in parts)
    constants = constants_of(value, fact)
    # A class that is called is called by generated code, which can be read.
    if None in inner or constants is None or _torch.collectives.waits_when_read(meta.cls):
        return None
    return is_leaf, (tuple(meta.attrs), inner, constants, absent_fields(fact))


def _parts(fact: object) -> Iterator[kinds.Metadata]:
    """Yields the metadata of a tensor, and of all that are in it."""
    if isinstance(fact, kinds.Metadata | kinds.Parts):
        for _, part in fact.inner if isinstance(fact, kinds.Metadata) else fact.items:
            yield from _parts(part)
    if isinstance(fact, kinds.Metadata):
        yield fact
