"""Second derivatives: a backward that autograd can follow, for functions that were compiled with `double_backward`.

With `create_graph=True` the compiled backward does not run. In its place runs the vjp, "call the function again and
ask autograd for its gradients", which is a function of inputs and tangents like any other and is compiled as one. It
can be differentiated as often as one likes, since it is compiled with `double_backward` too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.call import RecordedCall
from subclass_aot.engine.graph import drawing_from, generators
from subclass_aot.engine.outputs import Value, ViewOfBase, views_of
from subclass_aot.engine.runtime import Graphs, once, second_derivatives
from subclass_aot.engine.signature import JointSignature
from subclass_aot.subjects.second_derivatives.repeatable import draws_again


@second_derivatives.again.put
class DoubleBackward:
    """The part of a signature beside its compiled backward by which gradients can be differentiated.

    Args:
        signature: The signature.
        graphs: Its graphs.
        call: Its call.
        compiled: Compiles a function with the options of this one.
        repeats_draws: Whether the compiler draws random numbers as eager does.

    Raises:
        DoubleBackwardError: The function cannot be called again without another outcome.
    """

    def __init__(
        self,
        signature: JointSignature,
        graphs: Graphs,
        call: RecordedCall,
        compiled: Callable[[Callable[..., Any]], Callable[..., Any]],
        repeats_draws: bool,
    ) -> None:
        self._keeps_state = draws_again(signature, graphs, repeats_draws) or signature.outcome.changes_process
        self._changed = _changed(signature)
        self._put = signature.backward_outcome
        self._vjp = compiled(functools.partial(_gradients, signature, call, self._changed))

    def keep(self, values: list[torch.Tensor]) -> torch.Tensor:
        """Keeps the inputs as they are before the call; what it returns is an input of the compiled `Function`."""
        kept = [v.clone() if i in self._changed else v for i, v in enumerate(values)]
        state = generators(elsewhere=True) if self._keeps_state else None
        return _Keep.apply(state, kept, *[v for v in kept if v.requires_grad])  # type: ignore[no-untyped-call,no-any-return]

    def differentiable(self, backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        """Returns `backward` for an `autograd.Function`, or the vjp in its place where autograd has to follow."""

        @_torch.dynamo.below_dynamo
        def chosen(ctx: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
            if not torch.is_grad_enabled():
                return backward(ctx, *tangents)
            if self._put is not None:  # a vjp is traced, and would run hooks on traced tensors once
                once.refuse_put(self._put)
            keeper = ctx.next_functions[0][0]  # what `keep` returned is the first tensor that the function was given
            values = list(keeper.saved_tensors)
            draws = nullcontext() if keeper.state is None else drawing_from(keeper.state)
            with _torch.plain_subclasses.classes_see("functions"), draws:
                gradients = self._vjp(values, list(tangents))
            return (None,) * (len(ctx.needs_input_grad) - len(gradients)) + tuple(gradients)

        return chosen


class _Keep(torch.autograd.Function):
    """A node that autograd frees when it frees the compiled one, and that an ordinary backward does not read.

    Kept beside what backward itself reads, an input that is written after the call would make autograd refuse
    first derivatives, too.
    """

    @staticmethod
    def forward(ctx: Any, state: object, kept: list[torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.state = state
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, gradient: None) -> tuple[None, ...]:
        return (None,) * len(ctx.needs_input_grad)


def _gradients(
    signature: JointSignature, again: RecordedCall, changed: set[int], values: list[torch.Tensor], tangents: list[Any]
) -> tuple[Any, ...]:
    """Returns the vjp. It writes into none of its tensors."""
    wanted = [v for v, given in zip(values, signature.inputs, strict=True) if given.requires_grad]
    inputs = [v for v in wanted if v.requires_grad]  # some are said to, and do so only after they are written
    values = [v.clone() if i in changed else v for i, v in enumerate(values)]
    with torch.enable_grad():
        results = _through_autograd(signature, values, again(values))
        used = [(r, t) for r, t in zip(results, tangents, strict=True) if t is not None]
        if not used:
            return (None,) * len(wanted)
        outputs, given = zip(*used, strict=True)
        found = iter(torch.autograd.grad(outputs, inputs, given, create_graph=True, allow_unused=True))
        return tuple(next(found) if v.requires_grad else None for v in wanted)


def _through_autograd(signature: JointSignature, values: list[Any], results: list[Any]) -> list[Any]:
    """Returns the tensors that have tangents, in their order."""
    found = [values[i] for i, value in signature.mutations.under_autograd.items() if value.requires_grad]
    made = list(zip(results, signature.outputs, strict=False))  # a state of the generator comes last, and is no result
    found += [r for r, o in made if isinstance(o, Value) and o.requires_grad]
    views = [(i, view) for i, view in views_of(signature.outputs) if isinstance(view, ViewOfBase)]
    for position, value in enumerate(signature.intermediate_bases):
        if value.requires_grad:
            first = next(i for i, view in views if view.output is None and view.intermediate_base == position)
            found.append(_torch.autograd.base_of(results[first]))
    return found


def _changed(signature: JointSignature) -> set[int]:
    """Returns the inputs that a call changes."""
    found = signature.mutations.of_inputs
    return {m.input for m in found if m.mutated_leaves or m.metadata_mutations or m.mutates_context}
