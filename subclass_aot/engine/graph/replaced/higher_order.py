"""Operators that take functions, in a trace: they become what these functions do.

Torch's own rules for them want graphs of the functions, and know nothing of the tensors of a trace. Here the functions
are called, on traced tensors, above autograd and wrapper classes: what they compute is recorded, and differentiated, as
if it stood in the program. How often each is called is known but for `while_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.engine.graph.replaced.branches import choose, decided
from subclass_aot.errors import DataDependentError

_WHILE = """The condition of a while_loop depends on the data, so nobody knows how often it runs.
  Your line:  {line}
  A graph of dense tensors has no loops. Instead: loop a fixed number of times, with torch.where for what is to stay as
  it is once the condition is false, or loop outside the compiled function."""

_Function = Callable[..., Any]
"""What such an operator takes: a function of tensors."""


def _cond(
    recorder: Recorder, pred: object, true_fn: _Function, false_fn: _Function, operands: Sequence[Any] = ()
) -> Any:
    return choose(recorder, pred, lambda: true_fn(*operands), lambda: false_fn(*operands))


def _steps(
    recorder: Recorder, cond_fn: _Function, body_fn: _Function, carried: list[Any], rest: Sequence[Any]
) -> Iterator[list[Any]]:
    """Yields what the body of a loop gives, one step after the other, as long as the condition says so."""
    structure = _torch.higher_order.structure_of_carry(body_fn)
    while True:
        goes_on = decided(recorder, cond_fn(*carried, *rest), by_looking=True)
        if goes_on is None:
            raise DataDependentError(_WHILE.format(line=user_line()))
        if not goes_on:
            return
        result = body_fn(*carried, *rest)
        carried = list(result) if structure is None else structure.leaves(result)
        yield carried


def _while_loop(
    recorder: Recorder,
    cond_fn: _Function,
    body_fn: _Function,
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
    **_: object,
) -> Any:
    structure, last = _torch.higher_order.structure_of_carry(body_fn), None
    for made in _steps(recorder, cond_fn, body_fn, list(carried), additional):
        last = made
    if last is None:
        last = [x.clone() if isinstance(x, torch.Tensor) else x for x in carried]
    return tuple(last) if structure is None else structure.tree(last)


def _while_loop_stack_output(
    recorder: Recorder,
    cond_fn: _Function,
    body_fn: _Function,
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
    **_: object,
) -> Any:
    """Returns all that a loop carried on, beside one another; of one that is left at once, what it was given."""
    made = list(_steps(recorder, cond_fn, body_fn, list(carried), additional)) or [list(carried)]
    return tuple([torch.stack(parts) for parts in zip(*made, strict=True)])


def _map(recorder: Recorder, f: _Function, xs: Sequence[torch.Tensor], args: Sequence[Any] = (), **_: object) -> Any:
    rows = zip(*[x.unbind() for x in xs], strict=True)
    return _stacked([f(*row, *args) for row in rows])


def _scan(
    recorder: Recorder,
    combine: _Function,
    init: Sequence[Any],
    xs: Sequence[torch.Tensor],
    additional: Sequence[Any],
    **_: object,
) -> Any:
    """Returns a structured step gives the carry and a result, two trees; any other the tensors of both, in a row."""
    structure, carry, made = _torch.higher_order.structure_of_carry(combine), list(init), []
    for row in zip(*[x.unbind() for x in xs], strict=True):
        results = combine(*carry, *row, *additional)
        if structure is None:
            carry, result = list(results[: len(carry)]), list(results[len(carry) :])
        else:
            carry, result = structure.leaves(results[0]), results[1]
        made.append(result)
    return [*carry, *_stacked(made)] if structure is None else (structure.tree(carry), _stacked(made))


def _associative_scan(
    recorder: Recorder, combine: _Function, xs: Sequence[torch.Tensor], additional: Sequence[Any], **_: object
) -> Any:
    """Combines, in each step, each element with the one so far before it; the distance doubles."""
    structure, xs = _torch.higher_order.structure_of_carry(combine), list(xs)
    length, distance = xs[0].shape[0], 1
    while distance < length:
        combined = combine(*[x[:-distance] for x in xs], *[x[distance:] for x in xs], *additional)
        later = combined if structure is None else structure.leaves(combined)
        xs = [torch.cat([x[:distance], y]) for x, y in zip(xs, later, strict=True)]
        distance *= 2
    return xs if structure is None else structure.tree(xs)


def _call(recorder: Recorder, fn: _Function, *operands: Any, **_: object) -> Any:
    """Returns an operator that marks a function for compilers, and means a call of it."""
    return fn(*operands)


def _call_of_tuple(recorder: Recorder, fn: _Function, operands: Sequence[Any], *_: object) -> Any:
    return fn(*operands)


def _flex_attention(recorder: Recorder, *args: object, **kwargs: object) -> Any:
    return _torch.higher_order.dense_flex_attention(*args, **kwargs)


def _stacked(rows: list[Any]) -> Any:
    """Returns one structure with the tensors of several, stacked."""
    return optree.tree_map(
        lambda *parts: None if parts[0] is None else torch.stack(parts),
        *rows,
        none_is_leaf=True,
        namespace=_torch.modules.PYTREE_NAMESPACE,
    )


_operators = torch.ops.higher_order
HIGHER_ORDER: dict[Any, _Function] = {
    _operators.cond: _cond,
    _operators.while_loop: _while_loop,
    _operators.map_impl: _map,
    _operators.scan: _scan,
    _operators.associative_scan: _associative_scan,
    _operators.flex_attention: _flex_attention,
    _operators.while_loop_stack_output: _while_loop_stack_output,
    _operators.invoke_quant: _call,
    _operators.invoke_quant_packed: _call,
    _operators.foreach_map: _call,
    _operators.hints_wrapper: _call_of_tuple,
    _operators.strict_mode: _call_of_tuple,
}
"""What is called in place of operators that take functions, with the recorder as first argument."""
