"""Second derivatives: a backward that autograd can follow, for functions that were compiled with `double_backward`.

With `create_graph=True` the compiled backward does not run. In its place runs the vjp, "call the function again and
ask autograd for its gradients", which is a function of inputs and tangents like any other and is compiled as one. It
can be differentiated as often as one likes, since it is compiled with `double_backward` too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from subclass_aot.errors import DoubleBackwardError
from subclass_aot.runtime.graphs import Graphs
from subclass_aot.trace import Again, JointSignature, Value, ViewOfBase, draws, is_backward

_REFUSED = """Second derivatives of this function are asked for (double_backward=True), and it {what}.
  They call the function once more, and {why}.
  Instead: {instead}"""

_BACKWARD_WRITES = {
    "what": "writes into {path} while gradients are computed",
    "why": "would write a second time",
    "instead": "write outside the compiled function, or compile it without double_backward.",
}
_SHARED = {
    "what": "writes into memory that several inputs share: {path}",
    "why": "the inputs as they were before the write are kept one by one, so they would share nothing any more",
    "instead": "pass tensors that do not share storage, as in x.clone().",
}
_DRAWS = {
    "what": "draws random numbers ({path})",
    "why": "the draws must be the same again. {reason}",
    "instead": 'draw outside and pass the result as an argument, or use fw_compiler="eager" and the default generator '
    "in forward.",
}


class Twice:
    """What a signature needs beside its compiled backward so that gradients can be differentiated.

    Args:
        signature: The signature.
        graphs: Its graphs.
        again: Its call.
        compiled: Compiles a function with the options of this one.
        repeats_draws: Whether the compiler draws random numbers as eager does.

    Raises:
        DoubleBackwardError: The function cannot be called again without another outcome.
    """

    def __init__(
        self,
        signature: JointSignature,
        graphs: Graphs,
        again: Again,
        compiled: Callable[[Callable[..., Any]], Callable[..., Any]],
        repeats_draws: bool,
    ) -> None:
        self._draws = _check(signature, graphs, repeats_draws)
        self._changed = _changed(signature)
        self._vjp = compiled(functools.partial(_gradients, signature, again, self._changed))

    def keep(self, values: list[torch.Tensor]) -> torch.Tensor:
        """Keeps the inputs as they are before the call; what it returns is an input of the compiled `Function`."""
        kept = [v.clone() if i in self._changed else v for i, v in enumerate(values)]
        state = _rng_state() if self._draws else None
        return _Keep.apply(state, kept, *[v for v in kept if v.requires_grad])  # type: ignore[no-untyped-call,no-any-return]

    def differentiable(self, backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        """`backward` for an `autograd.Function`, or the vjp in its place where autograd is to follow."""

        def chosen(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
            if not torch.is_grad_enabled():
                return backward(ctx, *tangents)
            keeper = ctx.next_functions[0][0]  # what `keep` returned is the first tensor that the function was given
            values = list(keeper.saved_tensors)
            with nullcontext() if keeper.state is None else _drawing_from(keeper.state):
                gradients = self._vjp(values, list(tangents))
            return (None,) * (len(ctx.needs_input_grad) - len(gradients)) + tuple(gradients)

        return chosen


class _Keep(torch.autograd.Function):
    """A node that autograd frees when it frees the compiled one, and that an ordinary backward does not read.

    Kept beside what backward itself reads, an input that is written after the call would make autograd refuse
    first derivatives, too.
    """

    @staticmethod
    def forward(ctx: Any, state: Any, kept: list[torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.state = state
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, gradient: None) -> tuple[None, ...]:
        return (None,) * len(ctx.needs_input_grad)


def _gradients(
    signature: JointSignature, again: Again, changed: set[int], values: list[torch.Tensor], tangents: list[Any]
) -> tuple[Any, ...]:
    """The vjp. It writes into none of its tensors."""
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
    """The tensors that have tangents, in their order."""
    found = [values[i] for i, value in signature.rewritten if value.requires_grad]
    found += [r for r, o in zip(results, signature.outputs, strict=True) if isinstance(o, Value) and o.requires_grad]
    for hidden, value in enumerate(signature.hidden):
        if value.requires_grad:
            view = next(
                r
                for r, o in zip(results, signature.outputs, strict=True)
                if isinstance(o, ViewOfBase) and o.output is None and o.hidden == hidden
            )
            found.append(view._base)
    return found


def _changed(signature: JointSignature) -> set[int]:
    """Inputs that a call changes."""
    changed = {signature.index_map.slots[slot].outer for slot in signature.written_leaves}
    return changed | {i for i, *_ in signature.rewritten} | {i for i, *_ in signature.reshaped}


def _check(signature: JointSignature, graphs: Graphs, repeats_draws: bool) -> bool:
    """Whether the function draws random numbers.

    Raises:
        DoubleBackwardError: It does what a second call would not repeat.
    """
    slots = signature.index_map.slots

    def refuse(kind: dict[str, str], path: str, reason: str = "") -> None:
        texts = {name: text.format(path=path, reason=reason) for name, text in kind.items()}
        raise DoubleBackwardError(_REFUSED.format(**texts))

    def path_of(slot: int) -> str:
        return signature.inputs[slots[slot].outer].path + "".join(slots[slot].path)

    for slot in signature.backward_writes:
        refuse(_BACKWARD_WRITES, path_of(slot))
    for base in signature.bases:
        refuse(_SHARED, " and ".join(map(path_of, base.slots)))
    random = [n for g in (graphs.forward, graphs.backward) if g is not None for n in g.graph.nodes if draws(n)]
    for node in random:
        if is_backward(node):
            refuse(_DRAWS, str(node.target), "These are drawn in backward.")
        if node.kwargs.get("generator") is not None:
            refuse(_DRAWS, str(node.target), "These come from a generator of your own, whose state is not kept.")
        if not repeats_draws:
            refuse(_DRAWS, str(node.target), "Only the compiler \"eager\" is known to draw as the function does.")
    return bool(random)


def _rng_state() -> tuple[torch.Tensor, list[torch.Tensor]]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state(), cuda


@contextmanager
def _drawing_from(state: tuple[torch.Tensor, list[torch.Tensor]]) -> Iterator[None]:
    """Draws random numbers from an earlier state of the generators, and leaves them as they are now."""
    with torch.random.fork_rng(range(len(state[1]))):
        torch.set_rng_state(state[0])
        if state[1]:
            torch.cuda.set_rng_state_all(state[1])
        yield
