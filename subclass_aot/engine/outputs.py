"""Kinds of results of a traced function: computed, an input, a view of one, a constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.engine.descriptors import OutputDescriptor
from subclass_aot.kit.flatten import ValueMeta
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import Number


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """The very tensor that is leaf `slot` of the inputs."""

    slot: int


@dataclass(frozen=True, slots=True)
class AliasOfLeaf:
    """A tensor that shares storage with leaf `slot` of the inputs and has the metadata `spec`."""

    slot: int
    spec: Spec
    offset: Number
    """Storage offset relative to the leaf's own, in elements of the alias."""


@dataclass(frozen=True, slots=True)
class Value:
    """A result that is made from leaves.

    Attributes:
        meta: How to wrap it.
        leaves: Where each of its flat slots comes from: the descriptor of a graph output, `InputLeaf` or `AliasOfLeaf`;
            a value that is no tensor stands for itself.
        requires_grad: Whether autograd goes through it.
        view: The view that the result is, if it has a gradient of its own: see Note [Views with a gradient of their
            own]. What is made from leaves stands for it where autograd goes backward, and has its memory.
        view_rules: The name of the rules by which autograd lets that view be written.
        bits: The bits of the dense tensor that it is, "conj" or "neg", which are set one after the other.
    """

    meta: ValueMeta
    leaves: tuple[Any, ...]
    requires_grad: bool
    view: ViewOfInput | ViewOfBase | None = None
    view_rules: str = "DEFAULT"
    bits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SameAsInput:
    """The same object as an input."""

    value: int


@dataclass(frozen=True, slots=True)
class SameAsOutput:
    """The same object as an earlier result."""

    output: int


@dataclass(frozen=True, slots=True, eq=False)
class ViewOfInput:
    """A view of an input as autograd sees it; `replay(input, *symints, *beside)` makes it.

    Attributes:
        cls: The plain subclass that it is of; None for one that has none.
        beside: Tensors that it is made of beside its base, by their positions among
            `OutputReader.intermediate_bases`: the structure of a jagged tensor.
    """

    value: int
    replay: Callable[..., torch.Tensor]
    symints: tuple[Number, ...]
    requires_grad: bool
    cls: type | None = None
    beside: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ViewOfBase:
    """A view of what several results share; `replay(base, *symints, *beside)` makes it.

    Attributes:
        output: The result that is the base, or a made leaf between the base and the view; None if neither is a result.
        intermediate_base: Where `output` is None, the position of the base among `OutputReader.intermediate_bases`.
        requires_grad: Whether it is made where autograd is on.
        cls: As of `ViewOfInput`.
        beside: As of `ViewOfInput`.
    """

    output: int | None
    intermediate_base: int
    replay: Callable[..., torch.Tensor]
    symints: tuple[Number, ...]
    requires_grad: bool
    cls: type | None = None
    beside: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """A Python value, or a real tensor that did not depend on the inputs."""

    value: Any


@dataclass(frozen=True, slots=True)
class ComputedSymints:
    """A symbolic number, or a size with such numbers in it.

    Attributes:
        is_size: Whether it is a `torch.Size`, and not the one number itself.
        parts: Descriptors of graph outputs, and known numbers.
    """

    is_size: bool
    parts: tuple[OutputDescriptor | int, ...]


def users_of_bases(outputs: Iterable[Output]) -> dict[int, int]:
    """Returns the first output that is made of each of `OutputReader.intermediate_bases`, by position."""
    found: dict[int, int] = {}
    for i, view in views_of(outputs):
        for position in (*([view.intermediate_base] if isinstance(view, ViewOfBase) else []), *view.beside):
            found.setdefault(position, i)
    return found


def views_of(outputs: Iterable[Output]) -> Iterator[tuple[int, ViewOfInput | ViewOfBase]]:
    """Yields those outputs that are views, each with its position."""
    for i, output in enumerate(outputs):
        view = output.view if isinstance(output, Value) else output
        if isinstance(view, ViewOfInput | ViewOfBase):
            yield i, view


Output = Value | SameAsInput | SameAsOutput | ViewOfInput | ViewOfBase | Constant | ComputedSymints
