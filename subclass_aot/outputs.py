"""Kinds of results of a traced function: computed, an input, a view of one, a constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from subclass_aot.descriptors import OutputDescriptor
from subclass_aot.flatten import ValueMeta
from subclass_aot.meta import Spec
from subclass_aot.symbols import Number


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


class NumberAt(NamedTuple):
    """A symbolic number among the arguments of a view operator, by its position among those that the call knows."""

    position: int


class ViewStep(NamedTuple):
    """A view operator.

    Attributes:
        operator: The operator.
        args: Its arguments; None at the position of the tensor.
        kwargs: Its keyword arguments.
        tensor: The position of the tensor.
        result: Which of its results is meant; None if it has one.
    """

    operator: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    tensor: int
    result: int | None


@dataclass(frozen=True, slots=True)
class ViewChain:
    """View operators, one after the other: `chain(base, *symints)` makes a view again.

    Attributes:
        steps: The operators.
        detached: Whether the view has no history.
    """

    steps: tuple[ViewStep, ...]
    detached: bool = False

    def __call__(self, base: torch.Tensor, *symints: int) -> torch.Tensor:
        """Makes the view of `base`."""
        view = base
        for operator, args, kwargs, tensor, result in self.steps:
            given = [put(x, symints) for x in args] if symints else list(args)
            given[tensor] = view
            made = operator(*given, **{name: put(x, symints) for name, x in kwargs})
            view = made if result is None else made[result]
        return view.detach() if self.detached else view


def put(argument: object, symints: tuple[int, ...]) -> Any:
    """Returns an argument with numbers in it.

    >>> put([2, NumberAt(0)], (5,))
    [2, 5]
    """
    if type(argument) is NumberAt:
        return symints[argument.position]
    if isinstance(argument, tuple | list) and type(argument) in (tuple, list):
        return type(argument)(put(x, symints) for x in argument)
    return argument


@dataclass(frozen=True, slots=True)
class StridedView:
    """Sizes, strides and an offset in the memory of a dense tensor: `view(base)` makes it.

    Attributes:
        size: The sizes.
        stride: The strides, in elements.
        start: Where it begins, in elements after the start of the tensor.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    def __call__(self, base: torch.Tensor) -> torch.Tensor:
        """Makes the view of `base`."""
        return base.as_strided(self.size, self.stride, int(base.storage_offset()) + self.start)


@dataclass(frozen=True, slots=True, eq=False)
class ViewOfInput:
    """A view of an input as autograd sees it; `replay(input, *symints)` makes it.

    Attributes:
        cls: The plain subclass that it is of; None for one that has none.
    """

    value: int
    replay: Callable[..., torch.Tensor]
    symints: tuple[Number, ...]
    requires_grad: bool
    cls: type | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ViewOfBase:
    """A view of what several results share; `replay(base, *symints)` makes it.

    Attributes:
        output: The result that is the base, or a made leaf between the base and the view; None if neither is a result.
        intermediate_base: Where `output` is None, the position of the base among `OutputReader.intermediate_bases`.
        cls: As of `ViewOfInput`.
    """

    output: int | None
    intermediate_base: int
    replay: Callable[..., torch.Tensor]
    symints: tuple[Number, ...]
    requires_grad: bool
    cls: type | None = None


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


Output = Value | SameAsInput | SameAsOutput | ViewOfInput | ViewOfBase | Constant | ComputedSymints
