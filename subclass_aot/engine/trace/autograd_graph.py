"""Reads autograd's graph of traced tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack
from subclass_aot.meta.symbols import SizesMustBeKnown

_OF_PROGRAM = ("modified by an inplace operation", "invalid gradient at index")
"""What autograd says if what it saved was written since, and if a result was given another size since."""

_GRADIENT: Any = torch.Tensor.grad  # the property, which a trace replaces

_UNWRITABLE = "operator aten::size does not exist"
"""What it says if that is a wrapper with symbolic sizes, which it would put into the message."""


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Disables saved-tensor hooks and anomaly mode while tracing; they apply to the call.

    That is hooks on saved tensors (checkpointing, offloading), and the search for the origin of NaN: a traced gradient
    has no values to look at.
    """
    with ExitStack() as stack:
        if _torch.autograd.saved_tensor_hooks() is not None:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor))
        if torch.is_anomaly_enabled():
            stack.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


def has_history(result: torch.Tensor) -> bool:
    """Returns True if autograd goes through a result.

    Not so for a view that leads nowhere, since a view on the way was made under `no_grad`, nor for one that autograd
    has given up and refuses to speak of.
    """
    return _start_of_history(result) is not None


def leaf_behind(view: torch.Tensor) -> torch.Tensor | None:
    """Returns the autograd leaf that lies between a view and the base of both; None if there is none."""
    leaf: Any = getattr(_start_of_history(view), "variable", None)
    base = _torch.autograd.base_of(view)
    return leaf if base is not None and leaf is not None and _torch.autograd.base_of(leaf) is base else None


def _start_of_history(result: torch.Tensor) -> Any:
    """Returns the gradient function of a result; that of a view may lead nowhere, or to an autograd leaf."""
    try:
        node: Any = result.grad_fn
    except RuntimeError:
        return None
    while _torch.autograd.base_of(result) is not None and node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node


def is_only_viewed(result: torch.Tensor, hooked: bool) -> bool:
    """Returns whether autograd does nothing between a result and its base but what view operators do.

    Note [Views with a gradient of their own]
    A view of an input is regenerated at each call from the input, by view operators. So autograd would go straight to
    the input, and pass by what the program has it do on the way: the backward of an `autograd.Function` that returns
    a view, as gradient reversal does, and hooks. Such a result is an end of the compiled backward, like one that is
    computed; then it is given the memory of its base, as the view that it is (`runtime/attached.py`).

    Args:
        result: The result.
        hooked: Whether the function has registered hooks.
    """
    base = _torch.autograd.base_of(result)
    if base is None or is_invalidated(result):
        return True
    node: Any = result.grad_fn
    end = base.grad_fn
    while node is not None and node is not end:
        if isinstance(node, torch.autograd.function.BackwardCFunction) or _torch.autograd.has_noted_hooks(node):
            return False
        if hooked and _torch.autograd.has_hooks_of_node(node):
            return False
        if len(node.next_functions) != 1:
            break
        node = node.next_functions[0][0]
    return True


def is_invalidated(result: torch.Tensor) -> bool:
    """Returns whether a view is one that autograd could not regenerate after a write, and on which it raises."""
    try:
        result.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The gradients and edges that one run backward found.

    Attributes:
        gradients: For each leaf its gradient, None where `results` do not depend on it.
        reach: For each leaf the positions of the results it has a gradient of. See Note [Reach].
        errors: By the positions of results that autograd cannot go back from, since the function has written what it
            saved: what it says.
    """

    gradients: Sequence[torch.Tensor | None]
    reach: tuple[tuple[int, ...], ...]
    errors: Mapping[int, str] = field(default_factory=dict)


def gradients_of(
    results: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
    begin_again: Callable[[], None] = lambda: None,
) -> Found:
    """Returns the gradients of leaves of autograd's graph, from those of `results` that autograd can go back from.

    In eager mode the others fail when somebody goes back from them, and not before.

    Args:
        results: The results.
        leaves: The leaves.
        tangents: The gradients of the results.
        begin_again: Takes back what hooks have done, before they run once more.

    Raises:
        SizesMustBeKnown: Autograd cannot say why it fails.
    """
    try:
        return _found(results, leaves, tangents)
    except RuntimeError as error:
        if _UNWRITABLE in str(error):
            raise SizesMustBeKnown from error
        if not any(said in str(error) for said in _OF_PROGRAM):
            raise
    errors = {}
    for i, (result, tangent) in enumerate(zip(results, tangents, strict=True)):
        try:
            begin_again()
            _found([result], leaves, [tangent])
        except RuntimeError as error:
            errors[i] = str(error)
    good = [i for i in range(len(results)) if i not in errors]
    if not good:
        return Found((None,) * len(leaves), ((),) * len(leaves), errors)
    begin_again()
    found = _found([results[i] for i in good], leaves, [tangents[i] for i in good])
    return Found(found.gradients, tuple(tuple(good[k] for k in reach) for reach in found.reach), errors)


def _found(results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]) -> Found:
    """Returns the same, from all results.

    The graph stays, for gradients of other kinds. A checkpoint with `use_reentrant=True` wants them to be accumulated,
    and refuses `torch.autograd.grad`.
    """
    functions = _Functions(leaves)
    with functions.watched(results):
        if not any(hides_what_it_reaches(node) for node in _nodes(results)):
            found = _torch.autograd.gradients(results, leaves, tangents)
        else:
            torch.autograd.backward(results, tangents, retain_graph=True)
            found = tuple(leaf.grad if leaf.is_leaf else None for leaf in leaves)
    gradients = tuple(functions.with_accumulated(i, gradient) for i, gradient in enumerate(found))
    return Found(gradients, _reach(results, leaves, functions))


class _Functions:
    """What the backward of each `autograd.Function` does that autograd's graph does not show.

    It may give None as a gradient; torch's own operators give one wherever the graph has an edge. And it may call
    `backward()`, which accumulates gradients in leaves: so do reversible layers, and checkpoints.

    Args:
        leaves: Leaves of autograd's graph, and tensors that the function gave a history.

    Attributes:
        dead_ends: Where they give None: the node, and which gradient.
        accumulates: The positions of leaves in which each node accumulates a gradient.
    """

    def __init__(self, leaves: Sequence[torch.Tensor]) -> None:
        self.dead_ends: set[tuple[Any, int]] = set()
        self.accumulates: dict[Any, list[int]] = {}
        self._leaves = {i: leaf for i, leaf in enumerate(leaves) if leaf.is_leaf}
        self._accumulated: dict[int, torch.Tensor] = {}
        self._outside: dict[int, torch.Tensor] = {}

    @contextmanager
    def watched(self, results: Sequence[torch.Tensor]) -> Iterator[None]:
        """Runs the block, in which autograd goes back from `results`, with no gradient in any leaf at first."""
        nodes = [n for n in _nodes(results) if isinstance(n, torch.autograd.function.BackwardCFunction)]
        with ExitStack() as stack:
            for leaf in self._leaves.values() if nodes else ():
                stack.enter_context(PutBack(partial(setattr, leaf, "grad", leaf.grad)))
                leaf.grad = None
            for node in nodes:
                stack.enter_context(PutBack(node.register_prehook(self._begin).remove))
                stack.enter_context(PutBack(node.register_hook(partial(self._end, node)).remove))
            yield

    def with_accumulated(self, position: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Adds to the gradient of a leaf what was accumulated in it."""
        accumulated = self._accumulated.get(position)
        return gradient if accumulated is None else accumulated if gradient is None else accumulated + gradient

    def _begin(self, gradients: tuple[Any, ...]) -> None:
        self._outside = self._gradients()
        self._put(dict.fromkeys(self._outside))

    def _end(self, node: Any, gradients: tuple[Any, ...], _: Any) -> None:
        self.dead_ends.update((node, i) for i, gradient in enumerate(gradients) if gradient is None)
        found = self._gradients()
        for i, gradient in found.items():
            self.accumulates.setdefault(node, []).append(i)
            self._accumulated[i] = self.with_accumulated(i, gradient)  # type: ignore[assignment]
        self._put({**dict.fromkeys(found), **self._outside})

    def _gradients(self) -> dict[int, torch.Tensor]:
        """Returns the gradients of those leaves that have one.

        Each function asks all leaves. So it asks them below the modes and classes of a trace, in 0.13 us each.
        """
        get = _GRADIENT.__get__
        with _torch.dispatch.disable_torch_function():
            return {i: found for i, leaf in self._leaves.items() if (found := get(leaf)) is not None}

    def _put(self, gradients: Mapping[int, torch.Tensor | None]) -> None:
        with _torch.dispatch.disable_torch_function():
            for i, gradient in gradients.items():
                _GRADIENT.__set__(self._leaves[i], gradient)


def _reach(
    results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], functions: _Functions
) -> tuple[tuple[int, ...], ...]:
    """Returns for each leaf the positions of the results from which autograd's graph leads to it.

    Note [Reach]
    In eager mode, autograd visits what the results that have a gradient lead to, and leaves the rest alone: a parameter
    that was not used has no gradient, and an optimizer passes it over. A compiled backward is one node for all
    results, so what leads where stands in the signature. Zeros that an operator computes are gradients like others, and
    so are those that an `autograd.Function` is given where another one gave None.
    """
    everything = (1 << len(results)) - 1
    if len(results) == 1:
        return ((0,),) * len(leaves)
    mask: dict[Any, int] = {}
    visited: dict[Any, int] = {}  # also those that none of the gradients gets to
    for i, result in enumerate(results):
        mask[result.grad_fn] = mask.get(result.grad_fn, 0) | 1 << i
    dead_ends = functions.dead_ends
    at_leaf: dict[int, int] = {}
    accumulated: dict[int, int] = {}
    for node in in_order(results):
        passed = visited.get(node, 0) | mask[node]
        here = passed if dead_ends and _is_given_zeros(node) else mask[node]
        for i in functions.accumulates.get(node, ()):
            accumulated[i] = accumulated.get(i, 0) | here
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            at_leaf[id(variable)] = here
        for i, (function, _) in enumerate(node.next_functions):
            if function is not None:
                mask[function] = mask.get(function, 0) | (0 if (node, i) in dead_ends else here)
                if dead_ends:
                    visited[function] = visited.get(function, 0) | passed
    own = [leaf.grad_fn for leaf in leaves]  # that of an input which the function gave one, by writing into it
    at = [at_leaf.get(id(x), 0) if node is None else mask.get(node, 0) for x, node in zip(leaves, own, strict=True)]
    reached = [(bits | accumulated.get(i, 0)) & everything for i, bits in enumerate(at)]
    return tuple(tuple(i for i in range(len(results)) if bits >> i & 1) for bits in reached)


def _is_given_zeros(node: Any) -> bool:
    """Returns whether a node gets zeros where there is no gradient: the backward of an `autograd.Function`, unless its
    forward has said `ctx.set_materialize_grads(False)`, which autograd does not tell.
    """
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    cls = _torch.autograd.function_of(node)
    codes = (getattr(f, "__code__", None) for f in (cls.forward, cls.setup_context))
    return all(code is None or "set_materialize_grads" not in code.co_names for code in codes)


def hides_what_it_reaches(node: Any) -> bool:
    """Returns whether a node runs a backward of its own, and autograd's graph does not show what that leads to."""
    return _torch.autograd.name_of(node) == "CheckpointFunctionBackward"


def in_order(results: Iterable[torch.Tensor]) -> list[Any]:
    """Returns what autograd would run to differentiate `results`, each node before those that it leads to."""
    order: list[Any] = []
    seen: set[Any] = set()
    todo: list[tuple[Any, bool]] = [(t.grad_fn, False) for t in results]
    while todo:
        node, done = todo.pop()
        if done:
            order.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo.extend((function, False) for function, _ in node.next_functions)
    return order[::-1]


def has_functions(results: Iterable[torch.Tensor]) -> bool:
    """Returns True if autograd would run the backward of an `autograd.Function` to differentiate `results`."""
    return any(isinstance(node, torch.autograd.function.BackwardCFunction) for node in _nodes(results))


def running_code(results: Sequence[torch.Tensor]) -> frozenset[int]:
    """Returns the positions of results that lead to code of the program which not all of them lead to.

    That is the backward of an `autograd.Function`, or a hook. Where such a result has no gradient, eager mode does not
    run it; and what it gives for zeros may be anything.
    """
    if len(results) < 2:
        return frozenset()
    found, everything = 0, (1 << len(results)) - 1
    for node, here in led_to(results):
        if here != everything and _runs_code(node):
            found |= here
    return frozenset(i for i in range(len(results)) if found >> i & 1)


def led_to(results: Sequence[torch.Tensor]) -> Iterator[tuple[Any, int]]:
    """Yields the gradient functions that results lead to, each before those that it leads to.

    With each come the positions of the results that lead to it, as bits.
    """
    bits: dict[Any, int] = {}
    for i, result in enumerate(results):
        bits[result.grad_fn] = bits.get(result.grad_fn, 0) | 1 << i
    for node in in_order(results):
        here = bits[node]
        yield node, here
        for function, _ in node.next_functions:
            if function is not None:
                bits[function] = bits.get(function, 0) | here


def _runs_code(node: Any) -> bool:
    is_function = isinstance(node, torch.autograd.function.BackwardCFunction)
    return is_function or _torch.autograd.has_noted_hooks(node) or _torch.autograd.has_hooks_of_node(node)


def foreign_leaves(results: Iterable[torch.Tensor], own: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yields leaves of autograd's graph that `results` depend on and that are not in `own`."""
    known = {id(t) for t in own}
    for node in _nodes(results):
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor) and id(variable) not in known:
            yield variable


def _nodes(results: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Yields what autograd would run to differentiate `results`, each node once."""
    todo: list[Any] = [t.grad_fn for t in results]
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        todo.extend(function for function, _ in node.next_functions)
