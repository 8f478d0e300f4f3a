"""Operators on lists of tensors: steps of optimizers compute all parameters by one call.

A graph without writes has them in a form that returns new tensors. In their own form they write those that they are
given: `_foreach_add_` for `_foreach_add`, `_fused_adam_` for a variant of it that copies all.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import ORIGINALS

_aten = torch.ops.aten


class Writing(NamedTuple):
    """The form of an operator that writes lists.

    Attributes:
        func: The operator.
        written: The arguments that it writes, by position and name. Of each the other form returns a list; of several,
            a tuple of these.
        is_pointwise: Whether each tensor of the one list is written by what stands at its place in the other lists.
    """

    func: _torch.operators.Operator
    written: tuple[tuple[int, str], ...]
    is_pointwise: bool


@functools.cache
def writing_form(func: object) -> Writing | None:
    """Returns the form that writes, of an operator that returns lists of new tensors and does nothing else."""
    if not _torch.operators.is_overload(func):
        return None
    original = ORIGINALS.get(func)
    if original is not None:
        is_fused = _torch.operators.schema_of(original.func).name.startswith("aten::_fused_")
        return Writing(original.func, original.written, False) if is_fused else None
    name = _torch.operators.schema_of(func).name.removeprefix("aten::")
    packet = getattr(_aten, f"{name}_", None) if name.startswith("_foreach_") else None
    form = getattr(packet, _torch.operators.overload_name_of(func) or "default", None)
    first = _torch.operators.schema_of(func).arguments[0]
    return None if form is None or str(first.type) != "List[Tensor]" else Writing(form, ((0, first.name),), True)


@functools.cache
def writes_lists(func: object) -> bool:
    """Returns whether an operator is such a form."""
    if not _torch.operators.is_overload(func):
        return False
    return _torch.operators.schema_of(func).name.startswith(("aten::_foreach_", "aten::_fused_"))


class Item(NamedTuple):
    """One of the tensors that such an operator returns.

    Attributes:
        place: Which of the lists.
        number: Which tensor of it.
        node: It.
    """

    place: int
    number: int
    node: fx.Node


def items_of(node: fx.Node, form: Writing) -> list[Item] | None:
    """Returns the tensors that an operator returns and somebody reads; None where a list is read as a whole."""
    lists = [(0, node)]
    if len(form.written) > 1:
        found = [*_taken_from(node)]
        lists = [(place, part) for place, part in found if part is not None and place is not None]
        if len(lists) < len(found):
            return None
    items = []
    for place, part in lists:
        for number, item in _taken_from(part):
            if number is None or item is None:
                return None
            items.append(Item(place, number, item))
    return items if len({item[:2] for item in items}) == len(items) else None


def _taken_from(node: fx.Node) -> Iterator[tuple[int | None, fx.Node | None]]:
    """Yields what is taken from a list or tuple, and where it stands there; None for what reads all of it."""
    for user in node.users:
        is_item = user.target is operator.getitem and type(user.args[1]) is int and user.args[1] >= 0
        yield (user.args[1], user) if is_item else (None, None)  # type: ignore[misc]
