"""Finds results that go backward by themselves, as in eager mode.

Note [Parts of backward]
~~~~~~~~~~~~~~~~~~~~~~~~
In eager mode each result has a graph of autograd of its own, as far as it shares no node with another one. So two
losses go backward one after the other, without `retain_graph`, and what one of them has saved is released with it. An
`autograd.Function` is one node. So a compiled function applies one for each part: results that share a node which has
saved something are in one part. What they share beside that, such as a sum or a cast, each part computes by itself, as
each backward of eager mode does. The forward graph runs once, before these functions are applied; backward is recorded
part by part, and the backward graph of each part has what depends on its tangents.

Backward is one part where its parts would depend on each other: where it writes, puts something into an object, draws
random numbers or has another effect. So it is for more than `_MOST` parts, since each costs a node at each call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.passes import draws, is_backward, must_run
from subclass_aot.engine.trace.autograd_graph import hides_what_it_reaches, led_to

_MOST = 16


def parts_of(results: Sequence[torch.Tensor], starts: Collection[Any]) -> tuple[tuple[int, ...], ...]:
    """Returns the positions of results that are in one part, for each part.

    Args:
        results: The results that autograd can go back from.
        starts: The nodes that stand for the histories of inputs: results share these as they share inputs.
    """
    whole = (tuple(range(len(results))),)
    found = _Sets(len(results))
    for node, here in led_to(results):
        if hides_what_it_reaches(node):
            return whole
        if here & (here - 1) and node not in starts and _joins(node):
            found.join(here)
            if found.count == 1:
                return whole
    return found.members() if found.count <= _MOST else whole


def may_be_apart(recorder: Recorder) -> bool:
    """Returns whether no operator of a backward that was recorded has to run once, whatever the gradients are."""
    return not any(is_backward(node) and (draws(node) or must_run(node)) for node in recorder.nodes)


def _joins(node: Any) -> bool:
    """Returns whether results that share a node go backward together: it saves something, or has hooks."""
    saves = _torch.autograd.may_save(node)
    return saves or _torch.autograd.has_noted_hooks(node) or _torch.autograd.has_hooks_of_node(node)


class _Sets:
    """Disjoint sets of the numbers from 0 on.

    Args:
        count: How many numbers there are. Each begins in a set of its own.

    Attributes:
        count: How many sets there are.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._sets = [1 << i for i in range(count)]

    def join(self, bits: int) -> None:
        """Makes one set of those which have a number among `bits`."""
        joined = [each for each in self._sets if each & bits]
        if len(joined) > 1:
            self._sets = [each for each in self._sets if not each & bits] + [sum(joined)]
            self.count = len(self._sets)

    def members(self) -> tuple[tuple[int, ...], ...]:
        """Returns the sets, that of the first number first."""
        in_order = sorted(self._sets, key=lambda each: each & -each)
        return tuple(tuple(i for i in range(each.bit_length()) if each >> i & 1) for each in in_order)
