"""Both branches of a choice that depends on the data.

Note [Branches]
~~~~~~~~~~~~~~~
A graph of dense tensors has no branches, so both are computed, and `torch.where` takes the results of one. That is what
eager mode computes if a branch does nothing but compute. Of branches that write, draw random numbers, have effects or
give unlike results, the call that is traced takes one, and later calls compare: see Note [Reads of values].

Gradients need more. The branch that was not taken gets zeros, and zero times an infinite derivative is NaN, which would
be added to the gradient of whatever the branch reads: that of `x.sqrt()` at zero, which a program avoids by the very
choice. So what flows out of a branch, into tensors that were there before it, is replaced by zeros if it was not taken.

>>> import torch
>>> import subclass_aot as sa
>>> def f(x):
...     return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
>>> def show(graph, inputs):
...     print(graph.code)
...     return graph
>>> y = sa.aot_compile(f, fw_compiler=show)(torch.ones(3))
def forward(self, primals_1):
    sum_1 = torch.ops.aten.sum.default(primals_1)
    gt = torch.ops.aten.gt.Scalar(sum_1, 0);  sum_1 = None
    view = torch.ops.aten.view.default(gt, []);  gt = None
    sin = torch.ops.aten.sin.default(primals_1)
    cos = torch.ops.aten.cos.default(primals_1);  primals_1 = None
    where = torch.ops.aten.where.self(view, sin, cos);  view = sin = cos = None
    return (where,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optree
import torch
from torch import fx
from torch.autograd.graph import Node

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import argument_at, effects_of, runs_once
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.engine.graph.retrace import Retrace
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.meta import MetaTensor

_WRITES = """A branch of torch.cond writes into a tensor that is not its own, and the predicate depends on the data.
  Operator:   {operator}
  Your line:  {line}
  Both branches are computed, and torch.where takes the results of one, so the write would happen in any case.
  Instead: return the new value from both branches, and write it after torch.cond."""

_DRAWS = """A branch of torch.cond draws random numbers, and the predicate depends on the data.
  Operator:   {operator}
  Your line:  {line}
  Both branches are computed, so other numbers would be drawn later on than in eager mode.
  Instead: draw before torch.cond, and pass the numbers to the branches."""

_EFFECT = """A branch of torch.cond runs an operator that has an effect, and the predicate depends on the data.
  Operator:   {operator}
  Your line:  {line}
  Both branches are computed, so the effect would happen in any case.
  Instead: run it before torch.cond or after it."""

_DIFFER = """The branches of torch.cond give different things, and the predicate depends on the data.
  Your line:  {line}
  True:       {true}
  False:      {false}
  Instead: let both return tensors of one shape and dtype, in the same structure."""


def decided(recorder: Recorder, pred: object, by_looking: bool) -> bool | None:
    """Returns the value of a predicate, or None where it depends on the data.

    Args:
        recorder: Records.
        pred: A tensor of one element, or a Python value.
        by_looking: Whether the call that is traced may decide.
    """
    if not isinstance(pred, torch.Tensor):
        return bool(pred)
    pred = _torch.wrappers.behind_functionalization(pred)
    known = recorder.known(pred, by_looking) if type(pred) in (MetaTensor, torch.Tensor) else None
    with _torch.dispatch.disable_current_modes():
        return None if known is None else bool(known)


def choose(recorder: Recorder, pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Returns what one of two functions gives. See Note [Branches].

    Args:
        recorder: Records.
        pred: A tensor of one element, or a Python value.
        true_fn: Called if `pred` is true, or not known.
        false_fn: Called if `pred` is false, or not known.

    Raises:
        MutationError: A branch writes into tensors that were there before.
        TraceError: A branch draws random numbers or has an effect, or they do not give the same kind of results.
        Retrace: The same, where the call that is traced may decide: it has to.
    """
    looks = recorder.listeners.looks
    value = decided(recorder, pred, by_looking=looks is not None and looks.at_branches)
    if value is not None:
        return true_fn() if value else false_fn()
    try:
        return _both(recorder, pred, true_fn, false_fn)
    except TraceError:
        if looks is None or looks.at_branches:
            raise
    raise Retrace(looks_at_branches=True)


def _both(recorder: Recorder, pred: torch.Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Returns the results of two functions, and of these those of one."""
    taken = pred.detach().reshape(()).to(torch.bool)
    true, false = _branch(recorder, true_fn, taken), _branch(recorder, false_fn, ~taken)
    (trues, structure), (falses, other) = _flat(true), _flat(false)
    if structure != other or any(not _alike(x, y) for x, y in zip(trues, falses, strict=True)):
        raise TraceError(_DIFFER.format(line=user_line(), true=_described(true), false=_described(false)))
    pairs = zip(trues, falses, strict=True)
    results = [torch.where(taken, x, y) if isinstance(x, torch.Tensor) else x for x, y in pairs]
    return optree.tree_unflatten(structure, results)


def _branch(recorder: Recorder, fn: Callable[[], Any], taken: torch.Tensor) -> Any:
    """Calls one branch, of which no gradient gets out unless it is taken."""
    before, mutations_before = next(iter(reversed(recorder.graph.nodes)), None), len(recorder.mutations.metadata)
    first = _torch.autograd.last_sequence_number()
    result = fn()
    last = _torch.autograd.last_sequence_number()
    _refuse_effects(_nodes_after(recorder.graph, before), recorder.mutations.metadata[mutations_before:])

    def if_taken(gradients: Sequence[torch.Tensor | None], _: object) -> tuple[torch.Tensor | None, ...]:
        return tuple([None if g is None else torch.where(taken, g, torch.zeros_like(g)) for g in gradients])

    starts = [x.grad_fn for x in _flat(result)[0] if isinstance(x, torch.Tensor) and x.grad_fn is not None]
    for function in _functions_at_the_edge(starts, first, last):
        function.register_hook(if_taken)
    return result


def _functions_at_the_edge(starts: list[Node], first: int, last: int) -> Iterator[Node]:
    """Yields those gradient functions made from `first` to `last` that give gradients to functions made before."""

    def is_inside(function: Node) -> bool:
        return first < _torch.autograd.sequence_number_of(function) <= last

    seen: set[Node] = set()
    todo = [function for function in starts if is_inside(function)]
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        nexts = [into for into, _ in function.next_functions if into is not None]
        inside = [into for into in nexts if is_inside(into)]
        if len(inside) < len(nexts):
            yield function
        todo += inside


def _nodes_after(graph: fx.Graph, before: fx.Node | None) -> list[fx.Node]:
    found = []
    for node in reversed(graph.nodes):
        if node is before:
            break
        found.append(node)
    return found[::-1]


def _refuse_effects(nodes: list[fx.Node], metadata_mutations: list[Any]) -> None:
    """Refuses a branch that does more than compute.

    Args:
        nodes: What it recorded.
        metadata_mutations: Metadata mutations that the recorder has noted.
    """
    made = set(nodes)
    for node in nodes:
        if not _torch.operators.is_overload(node.target):
            continue
        effects = effects_of(node.target)
        if runs_once(node.target):
            raise TraceError(_EFFECT.format(operator=node.target, line=user_line()))
        if effects.random:
            raise TraceError(_DRAWS.format(operator=node.target, line=user_line()))
        for place in effects.writes:
            targets = argument_at(place, node.args, node.kwargs)
            for target in targets if isinstance(targets, list | tuple) else [targets]:
                if isinstance(target, fx.Node) and _origin(target) not in made:
                    raise MutationError(_WRITES.format(operator=node.target, line=user_line()))
    for tensor, step, _ in metadata_mutations:
        if type(tensor) is not MetaTensor:  # a wrapper, which may be older than the branch
            raise MutationError(_WRITES.format(operator=step.operator, line=user_line()))


def _origin(node: fx.Node) -> fx.Node:
    """Returns the node that made the memory that a node's value lies in."""
    while node.op == "call_function":
        if not _torch.operators.is_overload(node.target):  # it takes an item of several results
            node = node.args[0]  # type: ignore[assignment]
            continue
        viewed = next((v for v in effects_of(node.target).returns_view_of if v is not None), None)
        if viewed is None:
            break
        node = argument_at(viewed, node.args, node.kwargs)
    return node


def _flat(result: Any) -> tuple[list[Any], Any]:
    return optree.tree_flatten(result, none_is_leaf=True, namespace=_torch.modules.PYTREE_NAMESPACE)


def _alike(x: object, y: object) -> bool:
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return (type(x), x.shape, x.dtype, x.device) == (type(y), y.shape, y.dtype, y.device)
    return type(x) is type(y) and bool(x == y)


def _described(result: object) -> str:
    leaves = [
        f"{type(x).__name__}({list(x.shape)}, {x.dtype})" if isinstance(x, torch.Tensor) else repr(x)
        for x in _flat(result)[0]
    ]
    return ", ".join(leaves).replace("MetaTensor(", "Tensor(")
