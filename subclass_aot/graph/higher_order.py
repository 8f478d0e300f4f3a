"""Operators that take functions, in a trace: they become what these functions do.

Torch's own rules for them want graphs of the functions, and know nothing of the tensors of a trace. Here the functions
are called, on traced tensors, above autograd and wrapper classes: what they compute is recorded, and differentiated, as
if it stood in the program. How often each is called is known but for `while_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import DataDependentError
from subclass_aot.graph.branches import choose, decided
from subclass_aot.graph.recorder import Recorder

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


def _while_loop(
    recorder: Recorder,
    cond_fn: _Function,
    body_fn: _Function,
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
    **_: object,
) -> Any:
    carried = tuple(carried)
    while True:
        goes_on = decided(recorder, cond_fn(*carried, *additional), by_looking=True)
        if goes_on is None:
            raise DataDependentError(_WHILE.format(line=user_line()))
        if not goes_on:
            return carried
        carried = body_fn(*carried, *additional)


def _map(recorder: Recorder, f: _Function, xs: Sequence[torch.Tensor], args: Sequence[Any] = (), **_: object) -> Any:
    rows = zip(*[x.unbind() for x in xs], strict=True)
    return _stacked([f(*row, *args) for row in rows])


def _scan(
    recorder: Recorder, combine: _Function, init: Sequence[Any], xs: Sequence[torch.Tensor], additional: Sequence[Any]
) -> Any:
    carry, made = list(init), []
    for row in zip(*[x.unbind() for x in xs], strict=True):
        results = combine(*carry, *row, *additional)
        carry = list(results[: len(carry)])
        made.append(list(results[len(carry) :]))
    return [*carry, *_stacked(made)]


def _associative_scan(
    recorder: Recorder, combine: _Function, xs: Sequence[torch.Tensor], additional: Sequence[Any]
) -> Any:
    """In each step, each element is combined with the one so far before it; the distance doubles."""
    xs, length, distance = list(xs), xs[0].shape[0], 1
    while distance < length:
        later = combine(*[x[:-distance] for x in xs], *[x[distance:] for x in xs], *additional)
        xs = [torch.cat([x[:distance], y]) for x, y in zip(xs, later, strict=True)]
        distance *= 2
    return xs


def _flex_attention(recorder: Recorder, *args: object, **kwargs: object) -> Any:
    return _torch.dense_flex_attention(*args, **kwargs)


def _stacked(rows: list[Any]) -> Any:
    """One structure with the tensors of several, stacked."""
    return optree.tree_map(
        lambda *parts: None if parts[0] is None else torch.stack(parts),
        *rows,
        none_is_leaf=True,
        namespace=_torch.PYTREE_NAMESPACE,
    )


_operators = torch.ops.higher_order
HIGHER_ORDER: dict[Any, _Function] = {
    _operators.cond: _cond,
    _operators.while_loop: _while_loop,
    _operators.map_impl: _map,
    _operators.scan: _scan,
    _operators.associative_scan: _associative_scan,
    _operators.flex_attention: _flex_attention,
}
"""What is called in place of operators that take functions, with the recorder as first argument."""
