"""What a result of a traced function may be: computed, an input, a view of one, a constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.flatten import ValueMeta
from subclass_aot.meta import Spec
from subclass_aot.symbols import Number


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """The very tensor that is leaf `slot` of the inputs."""

    slot: int


@dataclass(frozen=True, slots=True)
class AliasOfLeaf:
    """A tensor that shares storage with leaf `slot` of the inputs and looks like `spec`."""

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
    """

    meta: ValueMeta
    leaves: tuple[Any, ...]
    requires_grad: bool


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
    """A view of an input as autograd sees it; `replay(input, *symints)` makes it."""

    value: int
    replay: Callable[..., torch.Tensor]
    symints: tuple[Any, ...]
    requires_grad: bool


@dataclass(frozen=True, slots=True, eq=False)
class ViewOfBase:
    """A view of what several results share; `replay(base, *symints)` makes it.

    Attributes:
        output: The result that is the base, or a made leaf between the base and the view; None if neither is a result.
        intermediate_base: Where `output` is None, the position of the base among `OutputReader.intermediate_bases`.
    """

    output: int | None
    intermediate_base: int
    replay: Callable[..., torch.Tensor]
    symints: tuple[Any, ...]
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A Python value, or a real tensor that did not depend on the inputs."""

    value: Any


@dataclass(frozen=True, slots=True)
class ComputedSymints:
    """A symbolic number, or a size with such numbers in it: graph outputs and known numbers, put into `make`."""

    make: Callable[..., Any]
    parts: tuple[Any, ...]


Output = Value | SameAsInput | SameAsOutput | ViewOfInput | ViewOfBase | Constant | ComputedSymints
