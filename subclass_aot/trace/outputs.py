"""What each result of a traced function is: computed, an input, a view of one, a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.errors import TraceError
from subclass_aot.flatten import FlattenPlan, ValueMeta
from subclass_aot.meta import MetaTensor, Spec, root


@dataclass(frozen=True, slots=True)
class Computed:
    """A leaf that the graph returns, at `position` among its output leaves."""

    position: int


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """The very tensor that is leaf `slot` of the inputs."""

    slot: int


@dataclass(frozen=True, slots=True)
class AliasOfLeaf:
    """A tensor that shares storage with leaf `slot` of the inputs and looks like `spec`."""

    slot: int
    spec: Spec
    offset: int
    """Storage offset relative to the leaf's own."""


@dataclass(frozen=True, slots=True)
class Value:
    """A result that is made from leaves.

    Attributes:
        meta: How to wrap it.
        leaves: Where each of its flat slots comes from; a value that is no tensor stands for itself.
        requires_grad: Whether autograd goes through it.
        starts_grad: Whether it requires grad and has no history: a leaf of autograd's that the function made.
    """

    meta: ValueMeta
    leaves: tuple[Any, ...]
    requires_grad: bool
    starts_grad: bool = False


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
    """A view of an input as autograd sees it; `replay(input)` makes it."""

    value: int
    replay: Callable[[torch.Tensor], torch.Tensor]
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A Python value, or a real tensor that did not depend on the inputs."""

    value: Any


Output = Value | SameAsInput | SameAsOutput | ViewOfInput | Constant


class OutputReader:
    """Says what each result is.

    Args:
        inputs: The traced inputs, as the function saw them.
        leaves: The flat slots of the inputs.
        admit: Makes a leaf of a real tensor that stands beside traced ones in a wrapper.
        autograd_views: Whether views of inputs are made again as autograd saw them. Inference mode has no such views;
            there they share storage leaf by leaf.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        leaves: Sequence[Any],
        admit: Callable[[torch.Tensor], MetaTensor],
        autograd_views: bool = True,
    ) -> None:
        self.autograd_views = autograd_views
        self.inputs = {id(t): i for i, t in enumerate(inputs)}
        self.blank_inputs = inputs
        self.slot_of = {leaf: i for i, leaf in enumerate(leaves) if isinstance(leaf, MetaTensor)}
        self.admit = admit
        self.computed: list[MetaTensor] = []

    def read(self, results: Sequence[Any]) -> tuple[Output, ...]:
        """What each of the flattened results is; computed leaves are collected in `computed`."""
        seen: dict[int, int] = {}
        outputs: list[Output] = []
        for i, result in enumerate(results):
            if not isinstance(result, torch.Tensor):
                outputs.append(Constant(result))
            elif id(result) in self.inputs:
                outputs.append(SameAsInput(self.inputs[id(result)]))
            elif id(result) in seen:
                outputs.append(SameAsOutput(seen[id(result)]))
            else:
                seen[id(result)] = i
                outputs.append(self._tensor(result, f"output {i}"))
        return tuple(outputs)

    def computed_value(self, tensor: torch.Tensor, where: str) -> Value:
        """A value whose every leaf the graph returns, aliases of inputs or not."""
        plan = FlattenPlan.of([tensor], count_symints=False, where=where)
        return Value(plan.metas[0], tuple(self._computed(x) for x in plan.unwrap([tensor])), tensor.requires_grad)

    def _tensor(self, result: torch.Tensor, where: str) -> Output:
        base = result._base
        if base is not None and self.autograd_views and id(base) in self.inputs:
            return self._view(result, self.inputs[id(base)])
        plan = FlattenPlan.of([result], count_symints=False, where=where)
        leaves = plan.unwrap([result])
        if not any(isinstance(leaf, MetaTensor) for leaf in leaves):
            return Constant(result)
        through = _has_history(result)
        sources = tuple(self._leaf(leaf, result.requires_grad) for leaf in leaves)
        return Value(plan.metas[0], sources, through, result.requires_grad and not through)

    def _leaf(self, leaf: Any, requires_grad: bool) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if isinstance(leaf, MetaTensor):
            slot = self.slot_of.get(leaf)
            if slot is not None and not requires_grad:
                return InputLeaf(slot)
            slot = self.slot_of.get(root(leaf))
            if slot is not None and not requires_grad and leaf.spec.dtype is root(leaf).spec.dtype:
                return AliasOfLeaf(slot, leaf.spec, leaf.spec.offset - root(leaf).spec.offset)
        return self._computed(leaf)

    def _computed(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        self.computed.append(leaf if isinstance(leaf, MetaTensor) else self.admit(leaf))
        return Computed(len(self.computed) - 1)

    def _view(self, result: torch.Tensor, value: int) -> ViewOfInput:
        """The view, made again from an input that belongs to no trace, so that what is kept holds on to nothing."""
        try:
            with _torch.disable_current_modes(), torch.no_grad():
                base = MetaTensor.like(self.blank_inputs[value].detach())
                clean = _torch.view_function(result)(base)
        except Exception as error:
            raise TraceError(
                f"A result is a view of an input, and the view cannot be made again from another tensor: {error}\n"
                "Return a copy instead, as in result.clone()."
            ) from error
        return ViewOfInput(value, _torch.view_function(clean), _has_history(result))


def _has_history(result: torch.Tensor) -> bool:
    """True if autograd goes through a result. A view of a view made under `no_grad` requires grad and has no history."""
    return result.requires_grad and result.grad_fn is not None


def spec_of_tangent(spec: Spec) -> Spec:
    """What the gradient of a leaf is expected to look like: the leaf's strides if they are dense, else packed."""
    dense = torch.empty_strided(spec.size, spec.stride, dtype=spec.dtype, device="meta")
    twin = torch.empty_like(dense)
    return Spec.make(spec.size, twin.stride(), 0, spec.dtype, spec.device, spec.layout)


